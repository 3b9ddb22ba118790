#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static sn_log_fn sink;
static void *sink_context;
static sn_log_level least_level = SN_LOG_INFO;

void sn_log_to(sn_log_fn fn, void *context) {
    sink = fn;
    sink_context = context;
}

void sn_log_set_level(sn_log_level least) { least_level = least; }

static void emit(sn_log_level level, const char *format, va_list args) {
    char text[2048];
    if (level < least_level) return;
    vsnprintf(text, sizeof text, format, args);
    if (sink) sink(sink_context, level, text);
    else fprintf(stderr, "%s%s\n", level == SN_LOG_WARN ? "warning: " : "", text);
}

#define DEFINE(name, level)              \
    void name(const char *format, ...) { \
        va_list args;                    \
        va_start(args, format);          \
        emit(level, format, args);       \
        va_end(args);                    \
    }
DEFINE(sn_debug, SN_LOG_DEBUG)
DEFINE(sn_info, SN_LOG_INFO)
DEFINE(sn_warn, SN_LOG_WARN)
