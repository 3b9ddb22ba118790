/* Where an offload option says that values rest, shared by offload*.c. */
#ifndef SN_PASSES_OFFLOAD_H
#define SN_PASSES_OFFLOAD_H

#include "passes/pass.h"

typedef struct sn_offload_place {
    const char *key; /* the option */
    sn_tier tier;    /* SN_TIER_DEVICE: none */
    double share;    /* of the bytes; 1 where the option names none */
    bool named;      /* the option names a share */
} sn_offload_place;

/* Reads option `key`: none, host or disk, with a share. Refuses a tier that saves nothing here and a disk without a folder; the job's
 * disk_folder is set. */
sn_status sn_offload_read(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *key, sn_offload_place *out);

#endif
