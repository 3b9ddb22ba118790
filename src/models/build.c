#include "models/build.h"

#include <math.h>

#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/kv_write/kv_write.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "ops/paged_attention/paged_attention.h"

sn_vid sn_build_weight(sn_builder *b, const char *name, int64_t rows, int64_t cols, sn_axis row_axis, sn_axis col_axis, sn_init init,
                       float scale) {
    sn_graph *g = b->g;
    if (g->status != SN_OK) return SN_NONE;
    sn_pid p = sn_job_find(g->job, name);
    if (p != SN_NONE) return sn_use_persistent(g, p);
    sn_shape shape = cols ? sn_shape_of(rows, cols) : sn_shape_of(rows);
    sn_source source = {.file = -1, .init = init, .scale = scale};
    if (b->parameters) {
        const char *path;
        g->status = b->parameters->find(b->parameters->state, name, &shape, &source, &path);
        if (g->status != SN_OK) return SN_NONE;
        source.file = sn_job_add_file(g->job, path);
        if (source.file < 0) {
            g->status = SN_ERR_NO_MEMORY;
            return SN_NONE;
        }
    }
    p = sn_job_add_persistent(g->job, name, SN_CLASS_WEIGHTS, SN_F32, shape);
    if (p == SN_NONE) {
        g->status = SN_ERR_NO_MEMORY;
        return SN_NONE;
    }
    sn_persistent *e = &g->job->persistent[p];
    e->axes[0] = (uint8_t)row_axis;
    e->axes[1] = (uint8_t)col_axis;
    e->trainable = true;
    e->decays = cols > 0;
    e->layer = g->layer;
    e->source = source;
    return sn_use_persistent(g, p);
}

sn_vid sn_build_linear(sn_builder *b, sn_vid x, const sn_linear *l) {
    sn_graph *g = b->g;
    int64_t rows = l->conv1d ? l->in : l->out, cols = l->conv1d ? l->out : l->in;
    sn_vid w = sn_build_weight(b, sn_name(g, "%s.weight", l->name), rows, cols, l->conv1d ? l->in_axis : l->out_axis,
                               l->conv1d ? l->out_axis : l->in_axis, SN_INIT_NORMAL, l->init);
    sn_vid bias =
        l->bias ? sn_build_weight(b, sn_name(g, "%s.bias", l->name), l->out, 0, l->out_axis, SN_AXIS_NONE, SN_INIT_ZERO, 0) : SN_NONE;
    sn_attrs a = {0};
    a.i[SN_MATMUL_TRANS_B] = !l->conv1d;
    sn_vid in[] = {x, w, bias};
    return sn_append1(g, SN_OP_matmul, &a, l->bias ? 3 : 2, in, l->name);
}

sn_vid sn_build_add(sn_builder *b, sn_vid x, sn_vid y, const char *name) {
    sn_attrs a = {.f[SN_ADD_ALPHA] = 1};
    return sn_append1(b->g, SN_OP_add, &a, 2, (sn_vid[]){x, y}, name);
}

sn_vid sn_build_attention(sn_builder *b, sn_vid q, sn_vid k, sn_vid v, int64_t head_dim, int64_t window, int layer) {
    sn_graph *g = b->g;
    sn_attrs a = {0};
    sn_vid out[SN_MAX_OUT];
    const char *name = sn_name(g, "layers.%d.attention", layer);
    if (g->role != SN_ROLE_GENERATE) {
        a.i[SN_ATTENTION_HEAD_DIM] = head_dim;
        a.i[SN_ATTENTION_WINDOW] = window;
        a.f[SN_ATTENTION_SCALE] = 1 / sqrt((double)head_dim);
        sn_append(g, SN_OP_attention, &a, 4, (sn_vid[]){q, k, v, b->seq_start}, name, out);
        return out[0];
    }
    if (g->status != SN_OK) return SN_NONE;
    const char *cache_name = sn_name(g, "layers.%d.kv_cache", layer);
    sn_pid p = sn_job_find(g->job, cache_name);
    if (p == SN_NONE) {
        int64_t kv_heads = b->config->num_kv_heads;
        p = sn_job_add_persistent(g->job, cache_name, SN_CLASS_KV_CACHE, b->shape->cache_form,
                                  sn_shape_of(b->shape->cache_blocks, 2, kv_heads, b->shape->block_size, head_dim));
        if (p == SN_NONE) return SN_NONE;
        g->job->persistent[p].axes[2] = SN_AXIS_KV_HEADS;
        g->job->persistent[p].layer = layer;
    }
    sn_vid cache = sn_use_persistent(g, p);
    a.i[SN_KV_WRITE_HEAD_DIM] = head_dim;
    sn_append(g, SN_OP_kv_write, &a, 4, (sn_vid[]){cache, k, v, b->slots}, sn_name(g, "layers.%d.kv_write", layer), out);
    a = (sn_attrs){0};
    a.i[SN_PAGED_ATTENTION_HEAD_DIM] = head_dim;
    a.i[SN_PAGED_ATTENTION_WINDOW] = window;
    a.f[SN_PAGED_ATTENTION_SCALE] = 1 / sqrt((double)head_dim);
    sn_append(g, SN_OP_paged_attention, &a, 5, (sn_vid[]){q, cache, b->block_table, b->sequence, b->positions}, name, out);
    return out[0];
}

void sn_build_inputs(sn_builder *b) {
    sn_graph *g = b->g;
    int64_t tokens = b->shape->tokens;
    b->positions = sn_input(g, "positions", SN_I32, sn_shape_of(tokens));
    if (g->role == SN_ROLE_GENERATE) {
        b->sequence = sn_input(g, "sequence", SN_I32, sn_shape_of(tokens));
        b->slots = sn_input(g, "slots", SN_I32, sn_shape_of(tokens));
        b->block_table = sn_input(g, "block_table", SN_I32, sn_shape_of(b->shape->sequences, b->shape->table_blocks));
    } else {
        b->seq_start = sn_input(g, "seq_start", SN_I32, sn_shape_of(tokens));
    }
}

static void loss_head(sn_builder *b, sn_vid x, sn_vid head) {
    sn_graph *g = b->g;
    int64_t tokens = b->shape->tokens;
    sn_vid labels = sn_input(g, "labels", SN_I32, sn_shape_of(tokens)), scale = sn_input(g, "scale", SN_F32, sn_shape_of(1)),
           out[SN_MAX_OUT];
    sn_attrs a = {0};
    a.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] = a.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] = sn_role_trains(g->role);
    sn_append(g, SN_OP_linear_cross_entropy, &a, 4, (sn_vid[]){x, head, labels, scale}, "loss", out);
    sn_pid total = sn_job_find(g->job, "loss");
    if (total == SN_NONE) total = sn_job_add_persistent(g->job, "loss", SN_CLASS_ACTIVATIONS, SN_F64, sn_shape_of(2));
    sn_vid ignored[SN_MAX_OUT];
    sn_append(g, SN_OP_accumulate_loss, NULL, 3, (sn_vid[]){sn_use_persistent(g, total), out[0], labels}, "loss.sum", ignored);
    if (g->role == SN_ROLE_EVALUATE) sn_mark_output(g, out[0], "token_loss");
}

void sn_build_head(sn_builder *b, sn_vid x, sn_vid head) {
    sn_graph *g = b->g;
    if (sn_role_trains(g->role) || g->role == SN_ROLE_EVALUATE) {
        loss_head(b, x, head);
        return;
    }
    if (g->role == SN_ROLE_GENERATE) {
        sn_vid rows = sn_input(g, "rows", SN_I32, sn_shape_of(b->shape->logit_rows));
        x = sn_append1(g, SN_OP_select_rows, NULL, 2, (sn_vid[]){x, rows}, "select_rows");
    }
    sn_attrs a = {0};
    a.i[SN_MATMUL_TRANS_B] = 1;
    sn_vid logits = sn_append1(g, SN_OP_matmul, &a, 2, (sn_vid[]){x, head}, "lm_head");
    sn_mark_output(g, logits, "logits");
}

sn_status sn_model_build(sn_graph *g, const sn_model_config *config, const sn_model_shape *shape, const sn_parameters *parameters) {
    static sn_status (*const families[])(sn_builder * b) = {[SN_ARCH_LLAMA] = sn_model_llama, [SN_ARCH_GPT2] = sn_model_gpt2};
    sn_builder b = {.g = g, .config = config, .shape = shape, .parameters = parameters};
    SN_TRY(families[config->arch](&b));
    return sn_graph_verify(g);
}
