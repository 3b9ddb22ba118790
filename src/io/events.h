/* TensorBoard event files.
 *
 * Format: records of { u64 length, u32 masked CRC-32C of it, bytes, u32 masked CRC-32C of them }, little-endian; the
 * bytes are a tensorflow.Event protocol buffer. Each opening makes a new file and each record is one write, so a
 * killed run leaves at most a torn last record, which TensorBoard passes over. */
#ifndef SN_IO_EVENTS_H
#define SN_IO_EVENTS_H

#include <stdint.h>

#include "base/status.h"

typedef struct sn_events sn_events;

/* Makes `folder` and in it events.out.tfevents.SECONDS.HOST.PID.N. first_step > 0 (a resumed run) writes a session
 * start, which makes TensorBoard forget what earlier files of the folder say about steps >= first_step. */
sn_status sn_events_open(const char *folder, int64_t first_step, sn_events **out);
void sn_events_close(sn_events *e); /* NULL is fine */

const char *sn_events_path(const sn_events *e);

/* One value of a curve: tag "train/loss", at the present time. */
sn_status sn_events_scalar(sn_events *e, const char *tag, int64_t step, double value);

#endif
