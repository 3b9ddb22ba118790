#include "support/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/team.h"
#include "tensor/convert.h"

enum { MOST = 4096 };
static void *held[MOST];
static int n_held;

static void *hold(size_t bytes) {
    void *p = aligned_alloc(64, sn_round_up(bytes ? bytes : 1, 64));
    if (!p || n_held == MOST) abort();
    return held[n_held++] = p;
}

void case_tensors_free(void) {
    while (n_held) free(held[--n_held]);
}

sn_tensor case_tensor(sn_dtype form, sn_shape shape) {
    sn_tensor t = {.dtype = form, .shape = shape};
    size_t bytes = sn_tensor_bytes(&t);
    t.data = hold(bytes);
    memset(t.data, 0xff, bytes);
    return t;
}

static void put(sn_tensor *t, int64_t i, float x) {
    if (t->dtype == SN_F32) ((float *)t->data)[i] = x;
    else ((uint16_t *)t->data)[i] = t->dtype == SN_BF16 ? sn_f32_to_bf16(x) : sn_f32_to_f16(x);
}

void case_fill(sn_tensor *t, uint32_t seed, float scale) {
    int64_t n = sn_elements(t);
    float *x = hold((size_t)n * sizeof *x);
    test_fill(x, (size_t)n, seed, scale);
    for (int64_t i = 0; i < n; i++) put(t, i, x[i]);
}

void case_sine(sn_tensor *t, int seed, double scale) {
    for (int64_t i = 0, n = sn_elements(t); i < n; i++)
        put(t, i, (float)(scale * sin(1.7 * (double)i + 0.37 * seed + 0.011 * (double)i * seed)));
}

double case_at(const sn_tensor *t, int64_t i) {
    if (t->dtype == SN_F32) return (double)((const float *)t->data)[i];
    uint16_t h = ((const uint16_t *)t->data)[i];
    return (double)(t->dtype == SN_BF16 ? sn_bf16_to_f32(h) : sn_f16_to_f32(h));
}

double case_error(const sn_tensor *a, const double *b) {
    double worst = 0;
    for (int64_t i = 0, n = sn_elements(a); i < n; i++) {
        double e = fabs(case_at(a, i) - b[i]) / (1 + fabs(b[i]));
        if (!(e <= worst)) worst = isnan(e) ? INFINITY : e;
    }
    return worst;
}

void case_run_again(const sn_kernel *kernel, sn_call *c, int n_threads) {
    sn_team *team;
    assert_ok(sn_team_open(n_threads, NULL, &team));
    size_t bytes = kernel->scratch ? kernel->scratch(c, n_threads) : 0;
    char *memory = malloc(bytes + 128), *scratch = (char *)sn_round_up((size_t)memory, 64);
    assert_non_null(memory);
    memset(scratch, 0xff, bytes);
    memset(scratch + bytes, 0x5a, 64);
    c->scratch = scratch;
    c->team = team;
    assert_true(!kernel->takes || kernel->takes(c));
    kernel->run(c);
    for (int i = 0; i < 64; i++) assert_int_equal(scratch[bytes + (size_t)i], 0x5a);
    free(memory);
    sn_team_close(team);
}

void case_run(const sn_op *op, const sn_kernel *kernel, sn_call *c, int n_threads) {
    c->n_out = op->n_out;
    assert_ok(op->shape(c));
    for (int i = 0; i < c->n_out; i++) c->out[i] = case_tensor(c->out[i].dtype, c->out[i].shape);
    case_run_again(kernel, c, n_threads);
}

int case_kernels(const sn_op *op, const sn_kernel **out, int most) {
    int n = 0;
    for (int t = 9; t >= 0; t--)
        for (const sn_kernel *k = op->kernels[t]; k && k->name; k++)
            if (k->device == SN_DEVICE_CPU && (sn_cpu_features() & k->needs) == k->needs && n < most) out[n++] = k;
    return n;
}

static double dot(const sn_tensor *a, int64_t i, const sn_tensor *b, int64_t j, int64_t d) {
    double s = 0;
    for (int64_t x = 0; x < d; x++) s += case_at(a, i + x) * case_at(b, j + x);
    return s;
}

static void one_row(const case_attention *a, int64_t t, int64_t h, double *p) {
    int64_t d = a->d, g = h / (a->heads / a->kv_heads), q = (t * a->heads + h) * d, first = a->seq_start[t];
    if (a->window > 0 && t - a->window + 1 > first) first = t - a->window + 1;
    double most = -INFINITY, sum = 0;
    for (int64_t j = first; j <= t; j++) p[j] = a->scale * dot(a->q, q, a->k, (j * a->kv_heads + g) * d, d);
    for (int64_t j = first; j <= t; j++) most = p[j] > most ? p[j] : most;
    for (int64_t j = first; j <= t; j++) sum += p[j] = exp(p[j] - most);
    if (a->lse) a->lse[t * a->heads + h] = most + log(sum);
    double delta = 0; /* sum of p dp */
    for (int64_t j = first; j <= t; j++) {
        int64_t k = (j * a->kv_heads + g) * d;
        p[j] /= sum;
        if (a->dout) delta += p[j] * dot(a->dout, q, a->v, k, d);
        for (int64_t x = 0; x < d && a->o; x++) a->o[q + x] += p[j] * case_at(a->v, k + x);
    }
    for (int64_t j = first; j <= t && a->dout; j++) {
        int64_t k = (j * a->kv_heads + g) * d;
        double ds = p[j] * (dot(a->dout, q, a->v, k, d) - delta) * a->scale;
        for (int64_t x = 0; x < d; x++) {
            a->dq[q + x] += ds * case_at(a->k, k + x);
            a->dk[k + x] += ds * case_at(a->q, q + x);
            a->dv[k + x] += p[j] * case_at(a->dout, q + x);
        }
    }
}

void case_attention_f64(const case_attention *a) {
    size_t many = (size_t)(a->n * a->heads * a->d) * sizeof(double), few = (size_t)(a->n * a->kv_heads * a->d) * sizeof(double);
    if (a->o) memset(a->o, 0, many);
    if (a->dq) memset(a->dq, 0, many);
    if (a->dk) memset(a->dk, 0, few);
    if (a->dv) memset(a->dv, 0, few);
    double *p = malloc((size_t)a->n * sizeof *p);
    assert_non_null(p);
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t h = 0; h < a->heads; h++) one_row(a, t, h, p);
    free(p);
}

sn_tensor case_seq_start(int64_t n, const int32_t *starts, int n_starts) {
    sn_tensor t = case_tensor(SN_I32, sn_shape_of(n));
    for (int64_t i = 0, s = 0; i < n; i++) {
        while (s + 1 < n_starts && starts[s + 1] <= i) s++;
        ((int32_t *)t.data)[i] = starts[s];
    }
    return t;
}

const float *case_golden(const char *name, size_t n) {
    char path[1024];
    snprintf(path, sizeof path, "tests/golden/%s", name); /* tests run in the source folder */
    int fd;
    uint64_t size;
    assert_ok(sn_file_open(path, &fd, &size));
    assert_int_equal(size, n * sizeof(float));
    float *x = hold(n * sizeof *x);
    assert_ok(sn_file_read_at(fd, path, 0, x, n * sizeof *x));
    return x;
}
