/* Status codes and error messages.
 *
 * A function that can fail returns sn_status. The message that explains the failure (file, key, tensor,
 * wanted and found value) is kept per thread and read with sn_error_text(). Nothing in the library exits
 * or aborts the host program. */
#ifndef SN_BASE_STATUS_H
#define SN_BASE_STATUS_H

#include <stddef.h>

#define SN_STATUS_LIST(X)                                                            \
    X(OK, "ok")                                                                      \
    X(ERR_USAGE, "usage error")       /* an option or argument is wrong */           \
    X(ERR_FILE, "file error")         /* open, read, write failed */                 \
    X(ERR_FORMAT, "format error")     /* a file's contents are malformed */          \
    X(ERR_UNSUPPORTED, "unsupported") /* well-formed, but snug has no code for it */ \
    X(ERR_SHAPE, "shape error")       /* tensors do not fit together */              \
    X(ERR_NO_MEMORY, "out of memory") /* an allocation failed */                     \
    X(ERR_BUDGET, "over budget")      /* the plan does not fit the stated memory */  \
    X(ERR_PLAN, "plan error")         /* missing kernel, illegal pair of passes */   \
    X(ERR_DATA, "data error")         /* training data is unusable */                \
    X(ERR_NUMERIC, "numeric error")   /* NaN or overflow guard */                    \
    X(ERR_NETWORK, "network error")                                                  \
    X(ERR_INTERRUPTED, "interrupted") /* SIGINT or SIGTERM */                        \
    X(ERR_INTERNAL, "internal error")

typedef enum sn_status {
#define X(name, text) SN_##name,
    SN_STATUS_LIST(X)
#undef X
} sn_status;

/* Sets this thread's message (printf format) and returns `code`. Usage: return sn_fail(SN_ERR_FILE, "%s: ...", path); */
sn_status sn_fail(sn_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " in front of this thread's message and returns `code` unchanged. */
sn_status sn_fail_in(sn_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* This thread's last message; "" if none. Valid until the next sn_fail on this thread. */
const char *sn_error_text(void);

/* Name of a status code, e.g. "file error". */
const char *sn_status_name(sn_status s);

/* Returns from the calling function when the expression is not SN_OK. */
#define SN_TRY(expr)                                  \
    do {                                              \
        sn_status try_status_ = (expr);               \
        if (try_status_ != SN_OK) return try_status_; \
    } while (0)

/* The same, but jumps to `label` with the code in `var`: for functions that must release something. */
#define SN_TRY_GOTO(var, label, expr)   \
    do {                                \
        (var) = (expr);                 \
        if ((var) != SN_OK) goto label; \
    } while (0)

#endif
