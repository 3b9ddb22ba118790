#include "ops/paged_attention/paged_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention/attention.h"
#include "ops/kv_write/kv_write.h"
#include "support/attention_case.h"

extern const sn_op sn_op_attention, sn_op_kv_write, sn_op_paged_attention;

/* A sequence of n tokens as attention sees it, and the same in a cache whose blocks are scattered. */
typedef struct paged_case {
    int64_t n, heads, kv_heads, d, window, block_tokens;
    sn_dtype form, cache_form;
} paged_case;

static const paged_case cases[] = {
    {1, 1, 1, 64, 0, 16, SN_F32, SN_F32},     {300, 3, 1, 64, 0, 16, SN_F32, SN_F32},   {150, 4, 2, 128, 0, 64, SN_F32, SN_F32},
    {600, 1, 1, 32, 0, 7, SN_F32, SN_F32},    {330, 4, 2, 80, 70, 256, SN_F32, SN_F32}, {40, 2, 1, 5, 4, 1, SN_F32, SN_F32},
    {20, 200, 1, 8, 0, 16, SN_F32, SN_F32},   {140, 3, 1, 64, 0, 32, SN_F32, SN_F16},   {140, 3, 1, 64, 0, 32, SN_F32, SN_BF16},
    {140, 3, 1, 64, 50, 32, SN_BF16, SN_F32}, {70, 2, 2, 72, 0, 16, SN_F16, SN_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct setup {
    sn_call plain;   /* attention over the whole sequence, run by the reference */
    sn_tensor cache; /* filled by kv_write */
    sn_tensor table; /* row 1 is the sequence's; row 0 is another's, full of block 0 */
} setup;

static setup set_up(const paged_case *a) {
    setup s = {.plain = {.n_in = 4}};
    for (int i = 0; i < 3; i++) {
        s.plain.in[i] = case_tensor(a->form, sn_shape_of(a->n, (i ? a->kv_heads : a->heads) * a->d));
        case_fill(&s.plain.in[i], 40 + (uint32_t)i, i == 2 ? 1 : 3);
    }
    s.plain.in[3] = case_seq_start(a->n, (int32_t[]){0}, 1);
    s.plain.attrs.i[SN_ATTENTION_HEAD_DIM] = a->d;
    s.plain.attrs.i[SN_ATTENTION_WINDOW] = a->window;
    s.plain.attrs.f[SN_ATTENTION_SCALE] = 1 / sqrt((double)a->d);
    int64_t blocks = (a->n + a->block_tokens - 1) / a->block_tokens + 2, total = 2 * blocks + 1;
    s.cache = case_tensor(a->cache_form, sn_shape_of(total, 2, a->kv_heads, a->block_tokens, a->d)); /* NaNs where nothing is written */
    s.table = case_tensor(SN_I32, sn_shape_of(2, blocks));
    sn_call write = {.n_in = 4, .in = {s.cache, s.plain.in[1], s.plain.in[2], case_tensor(SN_I32, sn_shape_of(a->n))}};
    write.attrs.i[SN_KV_WRITE_HEAD_DIM] = a->d;
    for (int64_t i = 0; i < blocks; i++) {
        ((int32_t *)s.table.data)[i] = 0;
        ((int32_t *)s.table.data)[blocks + i] = (int32_t)(total - 1 - 2 * i);
    }
    for (int64_t t = 0; t < a->n; t++)
        ((int32_t *)write.in[3].data)[t] = (int32_t)((total - 1 - 2 * (t / a->block_tokens)) * a->block_tokens + t % a->block_tokens);
    case_run(&sn_op_kv_write, &sn_kv_write_cpu[0], &write, 1);
    return s;
}

/* paged_attention of tokens first .. first + n - 1 of the sequence. */
static sn_tensor part(const setup *s, const sn_kernel *kernel, int64_t first, int64_t n, int n_threads) {
    const sn_tensor *q = &s->plain.in[0];
    sn_call c = {.n_in = 5, .attrs = s->plain.attrs};
    c.in[0] = (sn_tensor){(char *)q->data + (size_t)first * sn_row_bytes(q), q->dtype, sn_shape_of(n, sn_cols(q))};
    c.in[1] = s->cache;
    c.in[2] = s->table;
    c.in[3] = case_tensor(SN_I32, sn_shape_of(n));
    c.in[4] = case_tensor(SN_I32, sn_shape_of(n));
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)c.in[3].data)[i] = 1;
        ((int32_t *)c.in[4].data)[i] = (int32_t)(first + i);
    }
    case_run(&sn_op_paged_attention, kernel, &c, n_threads);
    return c.out[0];
}

static void equals_attention(void **state) {
    (void)state;
    const sn_kernel *kernels[8], *plain[8];
    int n_kernels = case_kernels(&sn_op_paged_attention, kernels, 8);
    assert_int_equal(case_kernels(&sn_op_attention, plain, 8), n_kernels);
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < n_kernels; k++) {
            setup s = set_up(&cases[i]);
            case_run(&sn_op_attention, plain[k], &s.plain, 1);
            sn_tensor o = part(&s, kernels[k], 0, cases[i].n, 2);
            if (cases[i].form == cases[i].cache_form || cases[i].cache_form == SN_F32) {
                if (memcmp(o.data, s.plain.out[0].data, sn_tensor_bytes(&o)))
                    fail_msg("case %d, %s: not attention's bits", i, kernels[k]->name);
            } else {
                double *want = malloc((size_t)sn_elements(&o) * sizeof *want);
                for (int64_t x = 0; x < sn_elements(&o); x++) want[x] = case_at(&s.plain.out[0], x);
                double e = case_error(&o, want);
                free(want);
                if (e > (cases[i].cache_form == SN_F16 ? 4e-3 : 3e-2)) fail_msg("case %d, %s: error %g", i, kernels[k]->name, e);
            }
            case_tensors_free();
        }
}

/* A whole prompt, parts of it, and one token at a time on any number of threads: the same bits. */
static void prompt_parts_and_decoding_agree(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_paged_attention, kernels, 8);
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < n_kernels; k++) {
            const paged_case *a = &cases[i];
            setup s = set_up(a);
            sn_tensor whole = part(&s, kernels[k], 0, a->n, 1);
            size_t row = sn_row_bytes(&whole);
            for (int64_t first = 0, n = 1; first < a->n; first += n, n = n * 2 + 3) {
                if (first + n > a->n) n = a->n - first;
                sn_tensor o = part(&s, kernels[k], first, n, 3);
                if (memcmp(o.data, (char *)whole.data + (size_t)first * row, (size_t)n * row))
                    fail_msg("case %d, %s: tokens %lld.. differ from the whole prompt", i, kernels[k]->name, (long long)first);
            }
            for (int64_t t = 0; t < a->n; t += 1 + a->n / 9) {
                sn_tensor o = part(&s, kernels[k], t, 1, 1 + (int)t % 4);
                if (memcmp(o.data, (char *)whole.data + (size_t)t * row, row))
                    fail_msg("case %d, %s: token %lld alone differs", i, kernels[k]->name, (long long)t);
            }
            case_tensors_free();
        }
}

/* Several sequences in one call, in decoding order, with idle tokens between. */
static void a_batch_with_idle_tokens(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_paged_attention, kernels, 8);
    setup s = set_up(&cases[1]);
    enum { N = 7 };
    static const int32_t sequence[N] = {1, -1, 1, 1, 5, 1, 1}, positions[N] = {299, 3, 0, 260, 0, 17, 18};
    for (int k = 0; k < n_kernels; k++)
        for (int threads = 1; threads <= 8; threads += 7) { /* with 8, chunks are spread */
            sn_call c = {.n_in = 5, .attrs = s.plain.attrs};
            c.in[0] = case_tensor(SN_F32, sn_shape_of(N, 3 * 64));
            for (int64_t i = 0; i < N; i++)
                memcpy((float *)c.in[0].data + i * 192, (const float *)s.plain.in[0].data + positions[i] * 192, 192 * sizeof(float));
            c.in[1] = s.cache, c.in[2] = s.table;
            c.in[3] = (sn_tensor){(void *)sequence, SN_I32, sn_shape_of(N)};
            c.in[4] = (sn_tensor){(void *)positions, SN_I32, sn_shape_of(N)};
            case_run(&sn_op_paged_attention, kernels[k], &c, threads);
            for (int64_t i = 0; i < N; i++) {
                const float *o = (const float *)c.out[0].data + i * 192;
                if (sequence[i] == 1) assert_memory_equal(o, part(&s, kernels[k], positions[i], 1, 1).data, 192 * sizeof(float));
                for (int x = 0; x < 192 && sequence[i] != 1; x++) assert_true(o[x] == 0);
            }
        }
    case_tensors_free();
}

/* W = 4: position 10 sees keys 7 .. 10, in a prompt, a part of one, and alone. */
static void window_sees_its_last_keys(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_paged_attention, kernels, 8);
    paged_case a = {11, 1, 1, 16, 4, 4, SN_F32, SN_F32};
    setup s = set_up(&a);
    memset(s.plain.in[0].data, 0, sn_tensor_bytes(&s.plain.in[0]));
    for (int j = 0; j < 11; j++) /* values are powers of two: the sum tells who was seen */
        for (int i = 0; i < 16; i++)
            ((float *)s.cache.data)[(((const int32_t *)s.table.data)[sn_cols(&s.table) + j / 4] * 2 + 1) * 64 + j % 4 * 16 + i] =
                (float)(1 << j);
    for (int k = 0; k < n_kernels; k++)
        for (int64_t first = 0; first <= 10; first += 5) {
            sn_tensor o = part(&s, kernels[k], first, 11 - first, 1);
            assert_true(((float *)o.data)[(10 - first) * 16] == (float)(128 + 256 + 512 + 1024) / 4);
        }
    case_tensors_free();
}

/* A position beyond its table, or a bad block, must not read outside the cache (the sanitizers watch). */
static void bad_tables_stay_inside(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_paged_attention, kernels, 8);
    setup s = set_up(&cases[2]);
    ((int32_t *)s.table.data)[sn_cols(&s.table) + 1] = 1 << 20;
    ((int32_t *)s.table.data)[sn_cols(&s.table) + 2] = -1;
    static const int32_t sequence[2] = {1, 1}, positions[2] = {190, 100000};
    for (int k = 0; k < n_kernels; k++) {
        sn_call c = {.n_in = 5, .attrs = s.plain.attrs};
        c.in[0] = case_tensor(SN_F32, sn_shape_of(2, 512));
        case_fill(&c.in[0], 1, 1);
        c.in[1] = s.cache, c.in[2] = s.table;
        c.in[3] = (sn_tensor){(void *)sequence, SN_I32, sn_shape_of(2)};
        c.in[4] = (sn_tensor){(void *)positions, SN_I32, sn_shape_of(2)};
        case_run(&sn_op_paged_attention, kernels[k], &c, 8);
    }
    case_tensors_free();
}

static void refused(sn_call c, const char *words) {
    c.n_out = 1;
    assert_int_equal(sn_op_paged_attention.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    setup s = set_up(&cases[2]);
    sn_call good = {.n_in = 5, .in = {s.plain.in[0], s.cache, s.table, s.plain.in[3], s.plain.in[3]}, .attrs = s.plain.attrs}, c = good;
    c.n_out = 1;
    assert_ok(sn_op_paged_attention.shape(&c));
    c = good, c.in[1].shape.d[1] = 3;
    refused(c, "[B,2,G,S,128], found f32 [11,3,2,64,128]");
    c = good, c.in[1].dtype = SN_Q8_0;
    refused(c, "found q8_0");
    c = good, c.in[0].shape.d[1] = 384;
    refused(c, "a multiple of 2 heads * 128], found f32 [150,384]");
    c = good, c.in[2].shape.rank = 1;
    refused(c, "block_table i32 [N,M]");
    c = good, c.in[3].shape.d[0] = 7;
    refused(c, "wanted sequence i32 [150], found i32 [7]");
    c = good, c.in[4].dtype = SN_U32;
    refused(c, "wanted positions i32 [150], found u32");
    c = good, c.attrs.f[SN_PAGED_ATTENTION_SCALE] = NAN;
    refused(c, "scale above 0");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_attention),         cmocka_unit_test(prompt_parts_and_decoding_agree),
        cmocka_unit_test(a_batch_with_idle_tokens), cmocka_unit_test(window_sees_its_last_keys),
        cmocka_unit_test(bad_tables_stay_inside),   cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
