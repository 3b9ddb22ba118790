/* One job under each technique: every row is what planning with that choice gives. */
#include <string.h>

#include "engine/compare.h"
#include "engine/search.h"
#include "engine/train.h"
#include "support/tiny.h"

static const sn_choice *choice_of(const sn_compared *row, const sn_pass **pass) {
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_choices; k++) {
            char text[160] = "";
            const char *key, *value;
            for (size_t j = 0; sn_choice_setting(&sn_passes[i]->choices[k], j, &key, &value); j++)
                sn_note_option(text, sizeof text, key, value);
            *pass = sn_passes[i];
            if (!strcmp(text, row->change)) return &sn_passes[i]->choices[k];
        }
    fail_msg("no pass has the choice %s", row->change);
    return NULL;
}

static void check_row(sn_model *m, const char *options, const sn_compared *row) {
    sn_options *o = tiny_recipe(options);
    sn_session s;
    sn_rates rates;
    sn_forecast f;
    if (row->pass) {
        const sn_pass *pass = NULL;
        const sn_choice *choice = choice_of(row, &pass);
        assert_string_equal(pass->name, row->pass);
        assert_int_equal(choice->kind, row->kind);
        assert_false(sn_choice_made(choice, o));
        assert_ok(sn_choose(o, choice, NULL, 0));
    }
    sn_status status = sn_train_plan(m, o, NULL, NULL, &s);
    if (*row->reason) {
        assert_int_not_equal(status, SN_OK);
        assert_string_equal(row->reason, sn_error_text());
    } else {
        assert_ok(status);
        assert_true(row->total == s.plan->bill.total && row->rank == s.plan->rank &&
                    !memcmp(row->by_tier, s.plan->bill.by_tier, sizeof row->by_tier));
        bool measured;
        assert_ok(sn_train_rates(&s, o, &rates, &measured));
        assert_ok(sn_train_forecast(&s, o, &rates, &f));
        assert_true(row->seconds == f.step_seconds && row->seconds > 0);
        sn_session_close(&s);
    }
    sn_options_close(o);
}

static size_t offered(const sn_options *recipe, int ranks) {
    size_t n = 0;
    sn_cluster c = {.addresses = 3};
    c.mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = ranks}});
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_choices; k++)
            n += !sn_passes[i]->offers || sn_passes[i]->offers(recipe, &c, &sn_passes[i]->choices[k]);
    return n;
}

static void rows_are_plans(void **state) {
    (void)state;
    static const struct {
        const char *options;
        int ranks;
        size_t offload; /* rows of a pass whose choices go to disk where a folder is named */
        size_t fewer;   /* choices made already, or of passes whose matter is decided */
    } cases[] = {{"threads=1", 1, 0, 1},
                 {"threads=1 ranks=3 zero_stage=2 precision=bf16 recompute=all device_shape=a100-80g nodes=3", 3, 0, 3},
                 {"threads=1 lora=on recompute=every:2 memory=1GiB", 1, 0, 3},
                 {"threads=1 offload_dir=/tmp memory=1GiB", 1, 7, 1}};
    sn_model m;
    assert_ok(sn_model_open("tests/golden/cli/tiny/config.json", &m));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_options *o = tiny_recipe(cases[i].options);
        sn_comparison c;
        assert_ok(sn_compare_training(&m, o, &c));
        assert_null(c.rows[0].pass);
        assert_int_equal(c.n, 1 + offered(o, cases[i].ranks) - cases[i].fewer);
        for (size_t k = 0; k < c.n; k++) check_row(&m, cases[i].options, &c.rows[k]);
        size_t to_disk = 0;
        for (size_t k = 0; k < c.n; k++)
            to_disk += strstr(c.rows[k].change, "offload") && !*c.rows[k].reason &&
                       c.rows[k].by_tier[SN_TIER_DISK] > c.rows[0].by_tier[SN_TIER_DISK];
        assert_int_equal(to_disk, cases[i].offload);
        if (i == 0) assert_true(!c.stated && c.limits.most[SN_HOLD_DEVICE] == UINT64_MAX);
        if (i == 1) assert_true(c.limits.most[SN_HOLD_DEVICE] == 81920ull << 20 && c.measured);
        if (i == 2) assert_true(c.stated && c.limits.most[SN_HOLD_DEVICE] == 1ull << 30);
        sn_str text = {0}, json = {0};
        sn_comparison_print(&c, &text);
        sn_comparison_json(&c, &json);
        size_t lines = 0;
        for (const char *at = text.data; *at; at++) lines += *at == '\n';
        assert_int_equal(lines, c.n + 2); /* heading, rows, remark */
        assert_non_null(strstr(json.data, "\"change\": \"\", \"kind\": \"exact\", \"device_bytes\""));
        assert_non_null(strstr(json.data, "\"step_seconds\""));
        sn_str_free(&text);
        sn_str_free(&json);
        sn_comparison_free(&c);
        sn_options_close(o);
    }
    sn_model_close(&m);
}

/* A job that cannot be planned is an error; a choice that cannot is a row with the reason. */
static void refusals(void **state) {
    (void)state;
    sn_model m;
    sn_comparison c;
    assert_ok(sn_model_open("tests/golden/cli/tiny/config.json", &m));
    sn_options *o = tiny_recipe("zero_stage=7");
    assert_int_equal(sn_compare_training(&m, o, &c), SN_ERR_USAGE);
    assert_null(c.rows);
    sn_options_close(o);
    sn_compared rows[2] = {{.total = 10}, {.pass = "p", .change = "--x \"y\"", .kind = SN_CHOICE_LOSSY, .reason = "no \"such\" kernel"}};
    rows[0].over = true;
    sn_comparison made = {.rows = rows, .n = 2, .stated = true, .limits = {.most = {9, UINT64_MAX, UINT64_MAX}, .stated = {true}}};
    sn_str text = {0};
    sn_comparison_print(&made, &text);
    assert_non_null(strstr(text.data, "refused: no \"such\" kernel"));
    assert_non_null(strstr(text.data, "  over\n"));
    assert_non_null(strstr(text.data, "guessed"));
    sn_str_clear(&text);
    sn_comparison_json(&made, &text);
    assert_non_null(strstr(text.data, "\"change\": \"--x \\\"y\\\"\", \"kind\": \"lossy\", \"refused\": \"no \\\"such\\\" kernel\"}"));
    assert_non_null(strstr(text.data, "\"fits\": false"));
    sn_str_free(&text);
    sn_model_close(&m);
}

/* Eight tensor-parallel ranks fill a node and do not leave it, whatever lies around them; a pair of stages is on two nodes. */
static void rings_inside_a_node(void **state) {
    (void)state;
    static const struct {
        int ranks, nodes;
        const char *options;
        int context, data, stages; /* rings that leave a node */
    } cases[] = {{16, 2, "tp=8 pp=2", 0, 0, 8},
                 {64, 8, "tp=8 pp=4", 0, 8, 8},
                 {64, 8, "tp=4 cp=2 pp=2", 0, 8, 8},
                 {32, 4, "tp=2 cp=2 pp=4", 0, 0, 8},
                 {32, 4, "tp=2 cp=2 pp=2", 0, 4, 8}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const sn_rates rates = sn_accelerator_rates(sn_accelerator_find("h100-80g"), cases[k].ranks, cases[k].nodes);
        sn_options *o = tiny_recipe(cases[k].options);
        sn_mesh mesh;
        assert_ok(sn_passes_mesh(o, cases[k].ranks, cases[k].nodes, &mesh));
        const int tp = mesh.size[SN_MESH_TP], stage = cases[k].ranks / mesh.size[SN_MESH_PP], node = cases[k].ranks / cases[k].nodes;
        assert_int_equal(sn_rings_between(&rates, &mesh, SN_MESH_TP), 0);
        assert_true(sn_ring_rate(&rates, &mesh, SN_MESH_TP) == 450e9);
        assert_int_equal(sn_rings_between(&rates, &mesh, SN_MESH_CP), cases[k].context);
        assert_int_equal(sn_rings_between(&rates, &mesh, SN_MESH_DP), cases[k].data);
        assert_int_equal(sn_rings_between(&rates, &mesh, SN_MESH_PP), cases[k].stages);
        assert_true(sn_ring_rate(&rates, &mesh, SN_MESH_PP) == 400e9 / cases[k].stages);
        for (int r = 0; r < cases[k].ranks; r++) {
            assert_int_equal(sn_mesh_index(&mesh, r, SN_MESH_PP), r / stage);
            assert_int_equal(sn_mesh_neighbour(&mesh, r, SN_MESH_TP, 0), r / tp * tp);
            for (int i = 0; i < tp; i++) assert_int_equal(sn_mesh_neighbour(&mesh, r, SN_MESH_TP, i) / node, r / node);
        }
        sn_options_close(o);
    }
}

/* The estimate by hand: a product that its arithmetic bounds, one that memory bounds, a collective over each link. */
static void the_roofline(void **state) {
    (void)state;
    const sn_accelerator *h100 = sn_accelerator_find("h100-80g"), *card = sn_accelerator_find("rtx4090-24g");
    assert_true(h100 && card && !sn_accelerator_find("h100") && !sn_accelerator_find("") && !sn_accelerator_find(NULL));
    const sn_mesh mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_REPLICA] = 2, [SN_MESH_DP] = 4, [SN_MESH_TP] = 2}});
    const sn_mesh flat = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = 16}});
    const sn_rates near = sn_accelerator_rates(h100, 16, 1), two = sn_accelerator_rates(h100, 16, 2),
                   cards = sn_accelerator_rates(card, 16, 2);
    assert_true(sn_ring_rate(&near, &flat, SN_MESH_DP) == 450e9 && sn_ring_rate(&two, &flat, SN_MESH_DP) == 400e9);
    assert_true(sn_ring_rate(&cards, &flat, SN_MESH_DP) == 12.5e9 && sn_rings_between(&cards, &flat, SN_MESH_DP) == 1);
    /* Rings inside a node have its link, those of all its ranks to another node each a part of its adapters. */
    assert_true(near.disk_read == 7e9 / 16 && two.disk_read == 7e9 / 8 && two.disk_write == 5e9 / 8);
    assert_true(sn_ring_rate(&two, &mesh, SN_MESH_TP) == 450e9 && sn_ring_rate(&two, &mesh, SN_MESH_DP) == 450e9);
    assert_true(sn_ring_rate(&two, &mesh, SN_MESH_REPLICA) == 50e9 && sn_rings_between(&two, &mesh, SN_MESH_REPLICA) == 8);
    const sn_mesh across =
        sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = 8, [SN_MESH_TP] = 2}}); /* a ring of every second rank: two leave a node */
    assert_true(sn_ring_rate(&two, &across, SN_MESH_DP) == 200e9 && sn_rings_between(&two, &across, SN_MESH_DP) == 2);
    assert_int_equal(sn_rings_between(&near, &across, SN_MESH_DP), 0);
    const sn_option_group *group = &sn_cluster_options;
    for (size_t i = 0; i < group->count; i++) /* every word of the option is in the table */
        for (const char *at = group->options[i].choices; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
            char name[32] = "";
            strncat(name, at, strcspn(at, ","));
            const sn_accelerator *a = sn_accelerator_find(name);
            if (!a || !a->bytes || a->f32_flops <= 0 || a->bf16_flops < a->f32_flops || a->bytes_per_s <= 0 || a->link < a->host ||
                !*a->source)
                fail_msg("device shape %s has no sound entry", name);
        }
    sn_arg whole = {.dtype = SN_F32, .shape = sn_shape_of(1000)}, shard = {.dtype = SN_F32, .shape = sn_shape_of(250)};
    sn_arg bf16[2] = {{.dtype = SN_BF16}, {.dtype = SN_BF16}}, mixed[2] = {{.dtype = SN_BF16}, {.dtype = SN_F32}};
    sn_instr instrs[] = {{.op = "matmul", .in = bf16, .n_in = 2, .flops = 4e3, .bytes = 100, .queue = SN_QUEUE_COMPUTE},
                         {.op = "matmul", .in = mixed, .n_in = 2, .flops = 4e3, .bytes = 100, .queue = SN_QUEUE_COMPUTE},
                         {.op = "add", .in = mixed, .n_in = 1, .flops = 1, .bytes = 3000, .queue = SN_QUEUE_COMPUTE},
                         {.op = "copy", .in = mixed, .n_in = 1, .bytes = 50, .queue = SN_QUEUE_COPY},
                         {.op = "all_gather",
                          .in = &shard,
                          .n_in = 1,
                          .out = &whole,
                          .n_out = 1,
                          .bytes = 8000,
                          .queue = SN_QUEUE_COMM,
                          .axis = SN_MESH_DP}};
    sn_program p = {.instrs = instrs, .count = 5};
    sn_rates rates = {.f32_flops = 1e3, .bf16_flops = 2e3, .bytes_per_s = 1e3, .ring = 1e3, .host = 100};
    const sn_mesh four = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = 4}}), one = sn_mesh_alone();
    sn_program_time t;
    assert_ok(sn_program_estimate(&p, &rates, &four, NULL, &t));
    assert_true(t.compute == 2 + 4 + 3 && t.io == 0.5 && t.sent == 3000 && t.communication == 3 && t.span == 9);
    assert_true(t.node_sent == 0);
    rates.node_ranks = 2; /* one ring over both nodes, at the rate of the network */
    rates.network = 100;
    assert_ok(sn_program_estimate(&p, &rates, &four, NULL, &t));
    assert_true(t.sent == 3000 && t.node_sent == 3000 && t.communication == 30);
    rates.node_ranks = 0;
    rates.bf16_flops = rates.ring = rates.host = 0; /* no such unit; links are memory */
    assert_ok(sn_program_estimate(&p, &rates, &four, NULL, &t));
    assert_true(t.compute == 4 + 4 + 3 && t.io == 0.05 && t.sent == 3000 && t.communication == 8);
    assert_ok(sn_program_estimate(&p, &rates, &one, NULL, &t));
    assert_true(t.sent == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_plans), cmocka_unit_test(refusals), cmocka_unit_test(rings_inside_a_node),
                                       cmocka_unit_test(the_roofline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
