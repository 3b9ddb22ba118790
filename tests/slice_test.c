/* Slices of uses: programs that read and write parts of values, and what is refused. */
#include <string.h>

#include "base/str.h"
#include "graph/op.h"
#include "ops/cast/cast.h"
#include "passes/pass.h"
#include "run/run.h"
#include "support/program_check.h"
#include "support/support.h"
#include "tensor/convert.h"

typedef struct fixture {
    sn_job *job;
    sn_graph *g;
    sn_device device;
    sn_plan *plan;
    sn_run *run;
} fixture;

static fixture make(void) {
    fixture f = {0};
    assert_ok(sn_job_new(&f.job));
    f.g = sn_job_add_graph(f.job, "slices", SN_ROLE_EVALUATE);
    assert_non_null(f.g);
    return f;
}

static void open_on(fixture *f, const char *device) {
    sn_cluster cluster = {.mesh = f->job->mesh};
    assert_ok(sn_device_find(device, 2, &f->device));
    cluster.addresses = f->device.shape.addresses;
    assert_ok(sn_pass_move.run(f->job, NULL, &cluster));
    assert_ok(sn_graph_verify(f->g));
    sn_plan_request request = {.device = f->device.shape, .reuse = true};
    assert_ok(sn_plan_make(f->job, &request, &f->plan));
    check_program_is_tight(f->plan, 0);
    check_program_is_ordered(&f->plan->programs[0].program);
    assert_ok(sn_run_open(f->plan, &f->device, NULL, &f->run));
}

static void finish(fixture *f) {
    sn_run_close(f->run);
    sn_plan_free(f->plan);
    sn_job_free(f->job);
}

static sn_vid value(fixture *f, const char *name, sn_dtype form, sn_shape shape, sn_tier tier) {
    sn_pid p = sn_job_add_persistent(f->job, name, SN_CLASS_WEIGHTS, form, shape);
    assert_int_not_equal(p, SN_NONE);
    f->job->persistent[p].rest.tier = tier;
    return sn_use_persistent(f->g, p);
}

/* to[to_at : to_at + n] = from[from_at : from_at + n] in the form of `to`. */
static sn_status put(fixture *f, sn_vid to, int64_t to_at, sn_vid from, int64_t from_at, int64_t n) {
    sn_attrs a = {.i = {[SN_CAST_DTYPE] = f->g->values[to].dtype}};
    sn_vid out[SN_MAX_OUT];
    sn_append_uses(f->g, SN_OP_cast, &a, 2, (sn_use[]){sn_use_rows(from, from_at, n), sn_use_rows(to, to_at, n)}, "put", out);
    sn_status s = f->g->status;
    f->g->status = SN_OK;
    return s;
}

static void *bytes_of(const fixture *f, const char *name) { return sn_run_persistent(f->run, sn_job_find(f->job, name)); }

/* Rows 2, 3 and 4 of x, which rests on either tier, become rows 5, 6 and 7 of y; nothing else of y changes. */
static void rows_and_elements(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "cpu-split"};
    for (int d = 0; d < 2; d++)
        for (int tier = 0; tier < 2; tier++) {
            fixture f = make();
            sn_vid x = value(&f, "x", SN_F32, sn_shape_of(9, 64), (sn_tier)tier),
                   y = value(&f, "y", SN_Q8_0, sn_shape_of(8, 64), SN_TIER_DEVICE);
            sn_vid u = value(&f, "u", SN_F32, sn_shape_of(7), (sn_tier)tier), v = value(&f, "v", SN_F16, sn_shape_of(9), SN_TIER_DEVICE);
            sn_vid cube = value(&f, "cube", SN_F32, sn_shape_of(3, 2, 5), SN_TIER_DEVICE),
                   part = value(&f, "part", SN_F32, sn_shape_of(4, 2, 5), SN_TIER_DEVICE);
            assert_ok(put(&f, y, 5, x, 2, 3));
            assert_ok(put(&f, v, 8, u, 6, 1));
            assert_ok(put(&f, part, 1, cube, 1, 2));
            open_on(&f, devices[d]);
            float *from = bytes_of(&f, "x"), *vector = bytes_of(&f, "u"), want[64], *box = bytes_of(&f, "cube");
            uint8_t *rows = bytes_of(&f, "y"), row[68];
            uint16_t *halves = bytes_of(&f, "v");
            for (int i = 0; i < 9 * 64; i++) from[i] = (float)(i / 64 * 100 + i % 64);
            for (int i = 0; i < 7; i++) vector[i] = (float)(i + 1);
            for (int i = 0; i < 30; i++) box[i] = (float)i;
            memset(rows, 0x5a, 8 * 68);
            memset(halves, 0x5a, 18);
            assert_ok(sn_run_program(f.run, 0, 0));
            for (int r = 0; r < 8; r++) {
                memset(row, 0x5a, sizeof row);
                for (int i = 0; i < 64; i++) want[i] = (float)((r - 3) * 100 + i);
                if (r >= 5) assert_ok(sn_from_f32(SN_Q8_0, want, 64, row));
                assert_memory_equal(rows + r * 68, row, 68);
            }
            for (int i = 0; i < 9; i++) assert_int_equal(halves[i], i == 8 ? sn_f32_to_f16(7) : 0x5a5a);
            const float *got = bytes_of(&f, "part");
            for (int i = 0; i < 40; i++) assert_float_equal(got[i], i >= 10 && i < 30 ? (float)i : 0, 0);
            if (d == 1 && tier == SN_TIER_HOST) { /* the slice alone was copied, not x */
                const sn_instr *copy = &f.plan->programs[0].program.instrs[0];
                assert_string_equal(copy->op, "copy");
                assert_int_equal(copy->out[0].shape.d[0], 3);
            }
            finish(&f);
        }
}

static void vectors_of_blocks(void **state) {
    (void)state;
    fixture f = make();
    sn_vid x = value(&f, "x", SN_Q8_0, sn_shape_of(96), SN_TIER_DEVICE), y = value(&f, "y", SN_F32, sn_shape_of(96), SN_TIER_DEVICE);
    assert_ok(put(&f, y, 32, x, 64, 32));
    open_on(&f, "cpu");
    float values[96];
    for (int i = 0; i < 96; i++) values[i] = (float)(i - 40);
    assert_ok(sn_from_f32(SN_Q8_0, values, 96, bytes_of(&f, "x")));
    assert_ok(sn_run_program(f.run, 0, 0));
    const float *got = bytes_of(&f, "y");
    float want[96];
    sn_to_f32(SN_Q8_0, bytes_of(&f, "x"), 96, want);
    for (int i = 0; i < 96; i++) assert_float_equal(got[i], i >= 32 && i < 64 ? want[i + 32] : 0, 0);
    finish(&f);
}

static void refused(sn_status s, const char *text) {
    assert_int_not_equal(s, SN_OK);
    if (!strstr(sn_error_text(), text)) fail_msg("'%s' does not say '%s'", sn_error_text(), text);
}

static void refusals(void **state) {
    (void)state;
    fixture f = make();
    sn_vid x = value(&f, "x", SN_F32, sn_shape_of(9, 64), SN_TIER_DEVICE), y = value(&f, "y", SN_F32, sn_shape_of(8, 64), SN_TIER_DEVICE);
    sn_vid q = value(&f, "q", SN_Q8_0, sn_shape_of(96), SN_TIER_DEVICE), v = value(&f, "v", SN_F32, sn_shape_of(96), SN_TIER_DEVICE);
    refused(put(&f, y, 6, x, 0, 3), "3 rows at 6 of y [8,64]");
    refused(put(&f, y, -1, x, 0, 3), "3 rows at -1 of y");
    refused(put(&f, y, 0, x, 9, 1), "1 rows at 9 of x [9,64]");
    refused(put(&f, y, 0, x, 1, -2), "-2 rows at 1 of x");
    refused(put(&f, v, 0, q, 16, 32), "32 elements at 16 of q");
    refused(put(&f, v, 0, q, 0, 48), "48 elements at 0 of q");
    refused(put(&f, y, INT64_MAX, x, 0, 3), "of y [8,64]");
    assert_ok(put(&f, y, 0, x, 0, 3)); /* a slice that a later change pushes out of its value is found by verify */
    assert_ok(sn_graph_verify(f.g));
    f.g->nodes[f.g->order[0]].in[1].slice_at = 6;
    refused(sn_graph_verify(f.g), "3 rows at 6 of y [8,64]");
    sn_job_free(f.job);
}

/* Rows are counted over the whole value, so where the first axis is spread over ranks a slice is refused by name. */
static void values_spread_over_ranks(void **state) {
    (void)state;
    fixture f = make();
    sn_vid x = value(&f, "x", SN_F32, sn_shape_of(8, 4), SN_TIER_DEVICE), y = value(&f, "y", SN_F32, sn_shape_of(8, 4), SN_TIER_DEVICE);
    assert_ok(put(&f, y, 0, x, 0, 2));
    f.job->mesh.size[SN_MESH_DP] = 2;
    f.job->persistent[1].rest.split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_SHARD, .unit = 1};
    f.g->values[y].rest.split = f.job->persistent[1].rest.split;
    assert_ok(sn_device_find("cpu", 1, &f.device));
    sn_plan_request request = {.device = f.device.shape, .reuse = true};
    refused(sn_plan_make(f.job, &request, &f.plan), "slice of y");
    sn_job_free(f.job);
}

static void printed(void **state) {
    (void)state;
    fixture f = make();
    sn_vid x = value(&f, "x", SN_F32, sn_shape_of(9, 64), SN_TIER_DEVICE), y = value(&f, "y", SN_F16, sn_shape_of(8, 64), SN_TIER_DEVICE);
    assert_ok(put(&f, y, 0, x, 4, 5));
    sn_str text = {0};
    sn_graph_print(f.g, &text);
    assert_non_null(strstr(text.data, "cast @x[4:9] @y[0:5]"));
    sn_str_free(&text);
    sn_job_free(f.job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_elements),        cmocka_unit_test(vectors_of_blocks), cmocka_unit_test(refusals),
        cmocka_unit_test(values_spread_over_ranks), cmocka_unit_test(printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
