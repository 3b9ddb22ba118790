/* The profile: what the kernels of this machine were seen to take, against the roofline of plan/forecast.h. */
#ifndef SN_ENGINE_PROFILE_H
#define SN_ENGINE_PROFILE_H

#include "plan/forecast.h"

/* Trains small random models in the usual forms, with a team of `threads`, and notes what each kernel took at each size. rates: the
 * peaks, on which the factors of *out rest. Half a minute and some 400 MiB. */
sn_status sn_profile_measure(int threads, const sn_rates *rates, sn_profile *out);

/* Bytes a second of a file in the folder that goes past the page cache as values at rest on disk do; 1 GiB, or half of what is free, gone
 * afterwards. */
sn_status sn_profile_disk(const char *folder, double *read, double *write);

#endif
