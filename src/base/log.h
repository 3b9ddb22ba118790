/* Messages for the user, on standard error. A library user may take them over. */
#ifndef SN_BASE_LOG_H
#define SN_BASE_LOG_H

typedef enum sn_log_level { SN_LOG_DEBUG, SN_LOG_INFO, SN_LOG_WARN, SN_LOG_NONE /* to be silent */ } sn_log_level;

typedef void (*sn_log_fn)(void *context, sn_log_level level, const char *text);
void sn_log_to(sn_log_fn fn, void *context); /* NULL: standard error again */
void sn_log_set_level(sn_log_level least);

void sn_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sn_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sn_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
