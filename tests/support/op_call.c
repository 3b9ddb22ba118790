#include "support/op_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/convert.h"

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, sn_round_up(bytes + 1, 64));
    assert_non_null(p);
    return p;
}

static size_t bytes_of(const sn_tensor *t) { return t->shape.rank ? sn_tensor_bytes(t) : 0; }

sn_tensor op_tensor(sn_dtype form, sn_shape shape, uint32_t seed, float scale) {
    sn_tensor t = {.dtype = form, .shape = shape};
    t.data = room(bytes_of(&t));
    memset(t.data, 0, bytes_of(&t));
    if (!sn_dtype_is_float(form)) return t;
    int64_t n = sn_elements(&t);
    float *values = room((size_t)n * sizeof(float));
    test_fill(values, (size_t)n, seed, scale);
    for (int64_t i = 0; i < n; i++) op_set(&t, i, (double)values[i]);
    free(values);
    return t;
}

sn_tensor op_tensor_of(sn_dtype form, sn_shape shape, const float *values) {
    sn_tensor t = op_tensor(form, shape, 0, 0);
    for (int64_t i = 0; i < sn_elements(&t); i++) op_set(&t, i, (double)values[i]);
    return t;
}

sn_tensor op_tensor_i32(sn_shape shape, const int32_t *values) {
    sn_tensor t = op_tensor(SN_I32, shape, 0, 0);
    memcpy(t.data, values, bytes_of(&t));
    return t;
}

void op_free_tensor(sn_tensor *t) {
    free(t->data);
    t->data = NULL;
}

double op_get(const sn_tensor *t, int64_t i) {
    switch (t->dtype) {
    case SN_F64: return ((const double *)t->data)[i];
    case SN_BF16: return (double)sn_bf16_to_f32(((const uint16_t *)t->data)[i]);
    case SN_F16: return (double)sn_f16_to_f32(((const uint16_t *)t->data)[i]);
    default: return (double)((const float *)t->data)[i];
    }
}

void op_set(const sn_tensor *t, int64_t i, double value) {
    switch (t->dtype) {
    case SN_F64: ((double *)t->data)[i] = value; break;
    case SN_BF16: ((uint16_t *)t->data)[i] = sn_f32_to_bf16((float)value); break;
    case SN_F16: ((uint16_t *)t->data)[i] = sn_f32_to_f16((float)value); break;
    default: ((float *)t->data)[i] = (float)value;
    }
}

void op_prepare(const sn_op *op, sn_call *c, int n_in) {
    c->n_in = n_in;
    c->n_out = op->n_out;
    assert_ok(op->shape(c));
    for (int o = 0; o < c->n_out; o++) {
        c->out[o].data = room(bytes_of(&c->out[o]));
        memset(c->out[o].data, 0xa5, bytes_of(&c->out[o]));
    }
}

void op_run_kernel(const sn_kernel *k, sn_call *c, int n_threads) {
    sn_team *team = NULL;
    assert_true(!k->takes || k->takes(c));
    if (n_threads > 1) assert_ok(sn_team_open(n_threads, NULL, &team));
    const size_t bytes = k->scratch ? k->scratch(c, n_threads) : 0;
    unsigned char *scratch = room(bytes + 64);
    memset(scratch, 0xa5, bytes + 64);
    c->scratch = scratch;
    c->team = team;
    k->run(c);
    for (size_t i = bytes; i < bytes + 64; i++) assert_int_equal(scratch[i], 0xa5); /* red zone */
    c->scratch = NULL;
    c->team = NULL;
    free(scratch);
    sn_team_close(team);
}

static const sn_kernel *reference_of(const sn_op *op) {
    const sn_kernel *found = NULL;
    for (size_t t = 0; t < sizeof op->kernels / sizeof op->kernels[0] && op->kernels[t]; t++)
        for (const sn_kernel *k = op->kernels[t]; k->name; k++) found = k;
    assert_non_null(found);
    assert_int_equal(found->needs, SN_CPU_REFERENCE);
    return found;
}

void op_run(const sn_op *op, sn_call *c) { op_run_kernel(reference_of(op), c, 1); }

void op_free_call(sn_call *c) {
    for (int i = 0; i < SN_MAX_IN; i++) op_free_tensor(&c->in[i]);
    for (int o = 0; o < SN_MAX_OUT; o++) op_free_tensor(&c->out[o]);
}

static sn_tensor copy_of(const sn_tensor *t) {
    sn_tensor copy = *t;
    if (!t->data) return copy;
    copy.data = room(bytes_of(t));
    memcpy(copy.data, t->data, bytes_of(t));
    return copy;
}

static sn_call copy_call(const sn_call *c) {
    sn_call copy = *c;
    for (int i = 0; i < SN_MAX_IN; i++) copy.in[i] = copy_of(&c->in[i]);
    for (int o = 0; o < SN_MAX_OUT; o++) copy.out[o] = copy_of(&c->out[o]);
    return copy;
}

static void assert_same(const char *op, const sn_kernel *k, int threads, const char *what, int i, const sn_tensor *a, const sn_tensor *b) {
    if (a->data && memcmp(a->data, b->data, bytes_of(a)))
        fail_msg("%s, kernel %s, %d threads: %s %d differs from the reference", op, k->name, threads, what, i);
}

void op_same_bits(const sn_op *op, sn_call *c) {
    sn_call fresh = copy_call(c);
    op_run(op, c);
    for (size_t t = 0; t < sizeof op->kernels / sizeof op->kernels[0] && op->kernels[t]; t++)
        for (const sn_kernel *k = op->kernels[t]; k->name; k++) {
            if (k->device != SN_DEVICE_CPU || (sn_cpu_features() & k->needs) != k->needs) continue;
            for (int threads = 1; threads <= 3; threads++) {
                sn_call copy = copy_call(&fresh);
                op_run_kernel(k, &copy, threads);
                for (int i = 0; i < c->n_in; i++) assert_same(op->name, k, threads, "input", i, &copy.in[i], &c->in[i]);
                for (int o = 0; o < c->n_out; o++) assert_same(op->name, k, threads, "output", o, &copy.out[o], &c->out[o]);
                op_free_call(&copy);
            }
        }
    for (int i = 0; i < c->n_in; i++)
        if (!(op->mutates >> i & 1)) assert_same(op->name, reference_of(op), 1, "unchanged input", i, &fresh.in[i], &c->in[i]);
    op_free_call(&fresh);
}

void op_in_place(const sn_op *op, sn_call *c) {
    op_run(op, c);
    for (int o = 0; o < c->n_out; o++)
        for (int i = 0; i < c->n_in; i++) {
            if (!(op->alias[o] >> i & 1) || bytes_of(&c->in[i]) != bytes_of(&c->out[o])) continue;
            for (size_t t = 0; t < sizeof op->kernels / sizeof op->kernels[0] && op->kernels[t]; t++)
                for (const sn_kernel *k = op->kernels[t]; k->name; k++) {
                    if (k->device != SN_DEVICE_CPU || (sn_cpu_features() & k->needs) != k->needs) continue;
                    sn_call copy = copy_call(c);
                    void *own = copy.out[o].data;
                    copy.out[o].data = copy.in[i].data;
                    op_run_kernel(k, &copy, 2);
                    for (int p = 0; p < c->n_out; p++) assert_same(op->name, k, 2, "output in place", p, &copy.out[p], &c->out[p]);
                    copy.out[o].data = own;
                    op_free_call(&copy);
                }
        }
}

void op_refused(const sn_op *op, sn_call *c, int n_in, const char *text) {
    c->n_in = n_in;
    c->n_out = op->n_out;
    assert_int_equal(op->shape(c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), text)) fail_msg("%s: the message \"%s\" lacks \"%s\"", op->name, sn_error_text(), text);
}

double op_tensor_error(const sn_tensor *t, const double *want) {
    double worst = 0;
    for (int64_t i = 0; i < sn_elements(t); i++) {
        double error = fabs(op_get(t, i) - want[i]) / (1 + fabs(want[i]));
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

double op_tolerance(sn_dtype form) { return form == SN_BF16 ? 0x1p-8 : form == SN_F16 ? 0x1p-11 : 2e-6; }

void op_golden(const char *path, const char *name, float *out, int64_t n) {
    char *text;
    size_t size, length = strlen(name);
    assert_ok(sn_file_read_all(path, 1 << 22, &text, &size));
    const char *line = text;
    while (line && (strncmp(line, name, length) || line[length] != ':')) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    if (!line) fail_msg("%s has no line %s", path, name);
    char *at = (char *)line + length + 1;
    for (int64_t i = 0; i < n; i++) {
        char *end;
        out[i] = strtof(at, &end);
        if (end == at) fail_msg("%s: %s has %lld numbers, wanted %lld", path, name, (long long)i, (long long)n);
        at = end;
    }
    assert_int_equal(*at, '\n');
    sn_free(text);
}
