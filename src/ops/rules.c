#include "ops/rules.h"

#include "graph/split.h"

static sn_status sane(const char *op, const sn_call *c, int i, const char *arg) {
    char text[96];
    size_t bytes;
    if (!sn_has(c, i)) return sn_fail(SN_ERR_SHAPE, "%s: input %s is missing", op, arg);
    const sn_tensor *t = &c->in[i];
    for (int k = 0; k < t->shape.rank; k++)
        if (t->shape.d[k] < 0) return sn_fail(SN_ERR_SHAPE, "%s: %s has a negative extent: %s", op, arg, sn_shape_text(&t->shape, text));
    if (!sn_shape_bytes(&t->shape, t->dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "%s: %s %s %s has no valid size", op, arg, sn_dtype_name(t->dtype), sn_shape_text(&t->shape, text));
    return SN_OK;
}

sn_status sn_need_any(const char *op, const sn_call *c, int i, const char *arg) { return sane(op, c, i, arg); }

sn_status sn_need_rank(const char *op, const sn_call *c, int i, const char *arg, int rank) {
    char text[96];
    SN_TRY(sane(op, c, i, arg));
    if (c->in[i].shape.rank != rank)
        return sn_fail(SN_ERR_SHAPE, "%s: %s must have %d dimensions, found %s", op, arg, rank, sn_shape_text(&c->in[i].shape, text));
    return SN_OK;
}

sn_status sn_need_shape(const char *op, const sn_call *c, int i, const char *arg, const sn_shape *want) {
    char wanted[96], found[96];
    SN_TRY(sane(op, c, i, arg));
    if (!sn_shape_equal(&c->in[i].shape, want))
        return sn_fail(SN_ERR_SHAPE, "%s: %s must be %s, found %s", op, arg, sn_shape_text(want, wanted),
                       sn_shape_text(&c->in[i].shape, found));
    return SN_OK;
}

sn_status sn_need_form(const char *op, const sn_call *c, int i, const char *arg, sn_dtype form) {
    if (!sn_has(c, i)) return sn_fail(SN_ERR_SHAPE, "%s: input %s is missing", op, arg);
    if (c->in[i].dtype != form)
        return sn_fail(SN_ERR_SHAPE, "%s: %s must be %s, found %s", op, arg, sn_dtype_name(form), sn_dtype_name(c->in[i].dtype));
    return SN_OK;
}

sn_status sn_need_float(const char *op, const sn_call *c, int i, const char *arg) {
    if (!sn_has(c, i)) return sn_fail(SN_ERR_SHAPE, "%s: input %s is missing", op, arg);
    if (!sn_dtype_is_float(c->in[i].dtype))
        return sn_fail(SN_ERR_SHAPE, "%s: %s must be f32, bf16 or f16, found %s", op, arg, sn_dtype_name(c->in[i].dtype));
    return SN_OK;
}

sn_status sn_need_float_attr(const char *op, const char *attr, int64_t value, sn_dtype *out) {
    if (value < 0 || value >= SN_DTYPE_COUNT || !sn_dtype_is_float((sn_dtype)value))
        return sn_fail(SN_ERR_SHAPE, "%s: %s must be f32, bf16 or f16, found %s", op, attr,
                       value < 0 || value >= SN_DTYPE_COUNT ? "no form" : sn_dtype_name((sn_dtype)value));
    *out = (sn_dtype)value;
    return SN_OK;
}

sn_status sn_need_mesh_axis(const char *op, int64_t axis) {
    if (axis < 0 || axis >= SN_MESH_AXES) return sn_fail(SN_ERR_SHAPE, "%s: no mesh axis %lld", op, (long long)axis);
    return SN_OK;
}

void sn_set_out(sn_call *c, int o, sn_dtype form, sn_shape shape) {
    c->out[o].dtype = form;
    c->out[o].shape = shape;
}

void sn_set_no_out(sn_call *c, int o) {
    c->out[o].dtype = SN_F32;
    c->out[o].shape = (sn_shape){.rank = 0};
}

const char *sn_axes_same(int rank, int n_in, int n_out) {
#define ROW(x)                                                                                  \
    {x "->", x "->" x, x "->" x "," x}, {x "," x "->", x "," x "->" x, x "," x "->" x "," x}, { \
        x "," x "," x "->", x "," x "," x "->" x, x "," x "," x "->" x "," x                    \
    }
    static const char *const letters[SN_MAX_DIMS][3][3] = {{ROW("a")}, {ROW("ab")}, {ROW("abc")}, {ROW("abcd")}, {ROW("abcde")}};
#undef ROW
    return letters[rank - 1][n_in - 1][n_out];
}

bool sn_accepts_float(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    (void)input;
    return sn_dtype_is_float(form);
}

bool sn_accepts_any(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    (void)input;
    (void)form;
    return true;
}

sn_vid sn_in(const sn_node *n, int i) { return i < n->n_in ? n->in[i].value : SN_NONE; }

sn_vid sn_in_form(sn_graph *g, sn_vid v, sn_dtype form) {
    if (v == SN_NONE || g->status != SN_OK || g->values[v].dtype == form) return v;
    return sn_append1(g, SN_OP_cast, &(sn_attrs){.i = {form}}, 1, &v, NULL);
}

sn_status sn_need_state_of(const char *op, const sn_call *c, int i, const char *arg, const sn_shape *want) {
    SN_TRY(sn_need_shape(op, c, i, arg, want));
    if (c->in[i].dtype == SN_F32 || c->in[i].dtype == SN_BF16) return SN_OK;
    return sn_fail(SN_ERR_SHAPE, "%s: %s must be f32 or bf16, found %s", op, arg, sn_dtype_name(c->in[i].dtype));
}

sn_status sn_need_state(const char *op, const sn_call *c, int i, const char *arg) {
    return sn_need_state_of(op, c, i, arg, &c->in[0].shape);
}

sn_status sn_need_hyper(const char *op, const sn_call *c, int hyper) {
    const sn_shape eight = sn_shape_of(8), four = sn_shape_of(4);
    SN_TRY(sn_need_shape(op, c, hyper, "hyper", &eight));
    SN_TRY(sn_need_form(op, c, hyper, "hyper", SN_F32));
    SN_TRY(sn_need_shape(op, c, hyper + 1, "clip", &four));
    return sn_need_form(op, c, hyper + 1, "clip", SN_F32);
}

sn_status sn_need_update(const char *op, const sn_call *c, int hyper) {
    const int w16 = hyper + 2;
    SN_TRY(sn_need_any(op, c, 0, "w"));
    SN_TRY(sn_need_state(op, c, 0, "w"));
    SN_TRY(sn_need_shape(op, c, 1, "g", &c->in[0].shape));
    SN_TRY(sn_need_float(op, c, 1, "g"));
    SN_TRY(sn_need_hyper(op, c, hyper));
    if (!sn_has(c, w16)) return SN_OK;
    SN_TRY(sn_need_shape(op, c, w16, "w16", &c->in[0].shape));
    if (c->in[w16].dtype == SN_BF16 || c->in[w16].dtype == SN_F16) return SN_OK;
    return sn_fail(SN_ERR_SHAPE, "%s: w16 must be bf16 or f16, found %s", op, sn_dtype_name(c->in[w16].dtype));
}

bool sn_accepts_update(int input, sn_dtype form, int hyper) {
    if (input == 1) return sn_dtype_is_float(form);
    if (input == hyper || input == hyper + 1) return form == SN_F32;
    return form == SN_BF16 || form == (input == hyper + 2 ? SN_F16 : SN_F32);
}

const char *sn_axes_update(const sn_call *c, int states) {
    static const char *const letters[3][2] = {{"a,a,a,H,C,a->", "a,a,a,a,H,C,a->"},
                                              {"ab,ab,ab,H,C,ab->", "ab,ab,ab,ab,H,C,ab->"},
                                              {"abc,abc,abc,H,C,abc->", "abc,abc,abc,abc,H,C,abc->"}};
    return c->in[0].shape.rank <= 3 ? letters[c->in[0].shape.rank - 1][states - 1] : NULL;
}

sn_cost sn_cost_each(const sn_call *c, double flops_an_element, uint32_t mutates) {
    sn_cost cost = {.flops = flops_an_element * (double)sn_elements(&c->in[0])};
    for (int i = 0; i < c->n_in; i++)
        if (sn_has(c, i)) cost.bytes += (double)sn_tensor_bytes(&c->in[i]) * (mutates >> i & 1 ? 2 : 1);
    for (int o = 0; o < c->n_out; o++)
        if (c->out[o].shape.rank) cost.bytes += (double)sn_tensor_bytes(&c->out[o]);
    return cost;
}
