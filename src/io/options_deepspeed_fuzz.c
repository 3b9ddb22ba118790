/* Any bytes as a DeepSpeed config: no fault of memory; what is read twice gives the same values. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/options.h"

static void silent(void *context, sn_log_level level, const char *text) { (void)context, (void)level, (void)text; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const sn_option table[] = {
        {.key = "stage", .kind = SN_OPTION_INT, .deepspeed = "zero.stage", .help = ""},
        {.key = "form", .kind = SN_OPTION_CHOICE, .choices = "a,b", .deepspeed = "x.on=a,y.on=b,form:One=a,form:Two=b", .help = ""},
        {.key = "beta", .kind = SN_OPTION_FLOAT, .deepspeed = "p.betas.0,p.beta", .help = ""},
        {.key = "name", .kind = SN_OPTION_STRING, .deepspeed = "name", .help = ""},
    };
    static const sn_option_group group = SN_OPTION_GROUP("Fuzz", table);
    static const sn_option_group *const groups[] = {&group};
    static const char *const hints[] = {"zero.bucket,zero.device:none,p.zero:0"};
    sn_options *o[2];
    sn_status s[2];
    sn_log_to(silent, NULL);
    for (int i = 0; i < 2; i++) {
        if (sn_options_open(groups, 1, &o[i]) != SN_OK) abort();
        s[i] = sn_options_read_deepspeed_text(o[i], "fuzz", (const char *)data, size, hints, 1);
    }
    if (s[0] != s[1]) abort();
    for (size_t i = 0; s[0] == SN_OK && i < group.count; i++)
        if (sn_options_has(o[0], table[i].key) != sn_options_has(o[1], table[i].key)) abort();
    const char *a = sn_options_string(o[0], "name"), *b = sn_options_string(o[1], "name");
    if (s[0] == SN_OK && a && strcmp(a, b)) abort();
    for (int i = 0; i < 2; i++) sn_options_close(o[i]);
    return 0;
}
