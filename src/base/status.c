#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[1024];

sn_status sn_fail(sn_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof error_text, format, args);
    va_end(args);
    return code;
}

sn_status sn_fail_in(sn_status code, const char *format, ...) {
    char context[256], old[sizeof error_text];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    memcpy(old, error_text, sizeof old);
    size_t used = strlen(context), rest = strlen(old); /* a message that does not fit is cut at its end */
    if (used + 2 + rest >= sizeof error_text) rest = sizeof error_text - used - 3;
    memcpy(error_text, context, used);
    memcpy(error_text + used, ": ", 2);
    memcpy(error_text + used + 2, old, rest);
    error_text[used + 2 + rest] = 0;
    return code;
}

const char *sn_error_text(void) { return error_text; }

const char *sn_status_name(sn_status s) {
    static const char *const names[] = {
#define X(name, text) text,
        SN_STATUS_LIST(X)
#undef X
    };
    return (size_t)s < sizeof names / sizeof names[0] ? names[s] : "unknown status";
}
