/* Inference of splits from the ops' index letters (graph/op.h, `axes`). */
#include <ctype.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/op.h"

/* The letters of operand `which` in "tk,nk->tn": inputs are 0 .., outputs follow. */
static const char *letters_of(const char *axes, int n_in, int which, int *count) {
    const char *at = axes;
    if (which >= n_in) {
        at = strstr(axes, "->");
        at = at ? at + 2 : axes + strlen(axes);
        which -= n_in;
    }
    for (; which > 0; which--) {
        at = strchr(at, ',');
        if (!at) break;
        at++;
    }
    *count = 0;
    if (!at) return "";
    while (isalpha((unsigned char)at[*count])) ++*count;
    return at;
}

static int find_letter(const char *letters, int count, char letter) {
    for (int i = 0; i < count; i++)
        if (letters[i] == letter) return i;
    return -1;
}

/* How a value is on mesh axis a where nothing more is wanted of it. */
static sn_split_axis resting(const sn_value *v, int a) { return v->rests_split >> a & 1 ? v->rest.split.axis[a] : v->result.axis[a]; }

/* How input i arrives on mesh axis a: as the node wants it, else as the value is. */
static sn_split_axis arriving(const sn_graph *g, const sn_node *n, int i, int a) {
    return n->in[i].has_split ? n->in[i].split.axis[a] : resting(&g->values[n->in[i].value], a);
}

static void want(sn_graph *g, sn_node *n, int i, int a, sn_split_axis x) {
    for (int k = 0; !n->in[i].has_split && k < SN_MESH_AXES; k++) n->in[i].split.axis[k] = resting(&g->values[n->in[i].value], k);
    n->in[i].has_split = true;
    n->in[i].split.axis[a] = x;
}

static bool may_split(const char *letters, int n) {
    for (int i = 0; i < n; i++)
        if (!islower((unsigned char)letters[i])) return false;
    return n > 0;
}

/* Whether operand `which` has just these letters. */
static bool alike(const char *axes, int n_in, int which, const char *letters, int n) {
    int count;
    const char *own = letters_of(axes, n_in, which, &count);
    return count == n && !memcmp(own, letters, (size_t)n);
}

/* Whether the op works element by element along operand `which`: no other operand has some of its letters only. */
static bool elementwise(const sn_node *n, const char *axes, int which) {
    int count, other;
    const char *letters = letters_of(axes, n->n_in, which, &count);
    if (!may_split(letters, count)) return false;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        if (alike(axes, n->n_in, i, letters, count)) continue;
        const char *more = letters_of(axes, n->n_in, i, &other);
        for (int k = 0; k < other; k++)
            if (find_letter(letters, count, more[k]) >= 0) return false;
    }
    return true;
}

/* The flat shard on mesh axis a in which an operand arrives, or in which the result has to rest; *which: that operand. */
static bool find_flat(const sn_graph *g, const sn_node *n, int a, int *which, sn_split_axis *flat) {
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        *flat = arriving(g, n, i, a);
        *which = i;
        if (sn_is_flat(flat)) return true;
    }
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE || g->values[n->out[o]].persistent == SN_NONE) continue;
        *flat = g->values[n->out[o]].rest.split.axis[a];
        *which = n->n_in + o;
        if (sn_is_flat(flat)) return true;
    }
    return false;
}

/* Elementwise ops and reductions of runs take flat shards: operands alike arrive so, results come out so. */
static bool infer_flat(sn_graph *g, sn_node *n, int a, const sn_op *op, const char *axes) {
    int which, count;
    sn_split_axis flat;
    if (!find_flat(g, n, a, &which, &flat)) return false;
    if (op->flat_run && n->n_out && which == 0 && flat.unit % op->flat_run == 0) {
        flat.unit /= op->flat_run;
        g->values[n->out[0]].result.axis[a] = flat;
        return true;
    }
    if (!axes || !elementwise(n, axes, which)) return false;
    const char *letters = letters_of(axes, n->n_in, which, &count);
    if (op->flat_runs_in && flat.unit % op->flat_run) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        bool same = alike(axes, n->n_in, i, letters, count);
        sn_split_axis x = arriving(g, n, i, a);
        if (op->flat_runs_in >> i & 1) {
            sn_split_axis runs = flat;
            runs.unit /= op->flat_run;
            if (!sn_is_flat(&x)) want(g, n, i, a, runs);
            continue;
        }
        if (same && !sn_is_flat(&x)) want(g, n, i, a, flat);
        if (!same && x.kind != SN_WHOLE) want(g, n, i, a, (sn_split_axis){.kind = SN_WHOLE});
    }
    for (int o = 0; o < n->n_out; o++)
        if (n->out[o] != SN_NONE)
            g->values[n->out[o]].result.axis[a] =
                alike(axes, n->n_in, n->n_in + o, letters, count) ? flat : (sn_split_axis){.kind = SN_WHOLE};
    return true;
}

/* ---- Shards of dimensions, and summands ---- */

/* A node whose splits on axis a are inferred. */
typedef struct work {
    sn_graph *g;
    sn_node *n;
    int a;
    const char *axes; /* NULL: everything whole */
    const sn_call *call;
    const sn_split_axis *kept; /* by value: the shard of a dimension that alone is kept of it; SN_WHOLE: all */
} work;

static const sn_shape *shape_of(const work *w, int which) {
    return which < w->n->n_in ? &w->call->in[which].shape : &w->g->values[w->n->out[which - w->n->n_in]].shape;
}

static bool is_there(const work *w, int which) {
    return (which < w->n->n_in ? w->n->in[which].value : w->n->out[which - w->n->n_in]) != SN_NONE;
}

/* How much a shard weighs that an operand has: what rests so stays so (but for activations between forward and backward), and rows can be
 * gathered, columns cannot. */
static int weight_of(const work *w, int which, const sn_split_axis *x) {
    if (which >= w->n->n_in) return 3;
    const sn_pid p = w->g->values[w->n->in[which].value].persistent;
    if (p != SN_NONE && w->g->job->persistent[p].class_of != SN_CLASS_ACTIVATIONS) return 3;
    return x->dim ? 2 : 1;
}

/* The shard that an operand is, or has to be: of an output, what it rests as or what alone is kept of it. */
static sn_split_axis shard_of(const work *w, int which) {
    if (which < w->n->n_in) return arriving(w->g, w->n, which, w->a);
    sn_vid v = w->n->out[which - w->n->n_in];
    return w->g->values[v].persistent != SN_NONE ? w->g->values[v].rest.split.axis[w->a] : w->kept[v];
}

/* The letter along which the node works in shards; 0: none. *from: the operand that says so, *shard: how. */
static char choose_letter(const work *w, int *from, sn_split_axis *shard) {
    char letter = 0;
    int best = 0;
    for (int i = 0; w->axes && i < w->n->n_in + w->n->n_out; i++) {
        if (!is_there(w, i)) continue;
        int count;
        const char *letters = letters_of(w->axes, w->n->n_in, i, &count);
        sn_split_axis x = shard_of(w, i);
        if (x.kind != SN_SHARD || x.dim >= count || !islower((unsigned char)letters[x.dim]) || weight_of(w, i, &x) <= best) continue;
        best = weight_of(w, i, &x);
        letter = letters[x.dim];
        *from = i;
        *shard = x;
    }
    return letter;
}

/* The same shard along a dimension of another extent: heads of a query and their keys. An extent of one a rank is one each. */
static sn_status scale_shard(const work *w, int from, const sn_split_axis *shard, int to, int dim, sn_split_axis *out) {
    int64_t one = shape_of(w, from)->d[shard->dim], other = shape_of(w, to)->d[dim], unit = sn_unit_of(shard), scaled;
    *out = *shard;
    out->dim = (uint8_t)dim;
    if (one == other) return SN_OK;
    if (sn_ops[w->n->op]->thirds || shard->at == SN_DEAL_THIRDS) {
        bool apart = one == 3 * other && shard->at == SN_DEAL_THIRDS, joined = other == 3 * one && shard->at == SN_DEAL_RUN;
        out->at = joined ? SN_DEAL_THIRDS : SN_DEAL_RUN;
        if (sn_ops[w->n->op]->thirds && (apart || joined)) return SN_OK;
        return sn_fail(SN_ERR_PLAN, "%s: %s %s: shards that are no thirds of three matrices beside each other", w->g->name,
                       sn_ops[w->n->op]->name, w->n->name);
    }
    if (one > 0 && !__builtin_mul_overflow(unit, other, &scaled) && scaled % one == 0 && scaled / one <= INT32_MAX)
        out->unit = (int32_t)(scaled / one);
    else if (other == w->g->job->mesh.size[w->a]) out->unit = 1;
    else
        return sn_fail(SN_ERR_PLAN, "%s: %s %s: %lld of %lld cannot stay together with a whole number of %lld", w->g->name,
                       sn_ops[w->n->op]->name, w->n->name, (long long)unit, (long long)one, (long long)other);
    return SN_OK;
}

/* A result that is linear in summands is one itself; what is not a summand there is whole, or added by one rank alone. */
static bool infer_linear(const work *w) {
    const sn_op *op = sn_ops[w->n->op];
    bool partial = false;
    /* A cast rounds each summand, which is wanted only where a summand is to rest. */
    bool rests = w->n->op == SN_OP_cast && is_there(w, w->n->n_in) && shard_of(w, w->n->n_in).kind == SN_PARTIAL;
    for (int i = 0; i < w->n->n_in; i++) {
        if (w->n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(w->g, w->n, i, w->a);
        bool linear = op->linear >> i & 1 || (rests && !i), once = op->added_once >> i & 1;
        if (x.kind == SN_PARTIAL ? !linear : x.kind != SN_WHOLE || (linear && !once)) return false;
        partial |= x.kind == SN_PARTIAL;
    }
    for (int t = 0; partial && t < w->n->n_in + w->n->n_out; t++) {
        if (!is_there(w, t) || (t < w->n->n_in && !(op->into >> t & 1))) continue;
        const sn_value *v = &w->g->values[t < w->n->n_in ? w->n->in[t].value : w->n->out[t - w->n->n_in]];
        if (v->persistent != SN_NONE && v->rest.split.axis[w->a].kind != SN_PARTIAL) return false; /* it is to rest as a sum */
    }
    for (int o = 0; partial && o < w->n->n_out; o++)
        if (w->n->out[o] != SN_NONE) w->g->values[w->n->out[o]].result.axis[w->a] = (sn_split_axis){.kind = SN_PARTIAL};
    return partial;
}

/* Of a reduction of runs each rank has those of its own elements. */
static bool infer_runs(const work *w) {
    const sn_op *op = sn_ops[w->n->op];
    if (!op->flat_run || op->flat_runs_in || arriving(w->g, w->n, 0, w->a).kind != SN_SHARD) return false;
    sn_value *out = &w->g->values[w->n->out[0]];
    out->result.axis[w->a] = (sn_split_axis){.kind = SN_PARTIAL};
    out->run = op->flat_run;
    out->runs_of = w->n->in[0].value;
    return true;
}

/* Shards of a row hold whole blocks of its form. */
static sn_status check_blocks(const work *w, int which, const sn_split_axis *x) {
    sn_dtype form = which < w->n->n_in ? w->call->in[which].dtype : w->g->values[w->n->out[which - w->n->n_in]].dtype;
    if (x->kind != SN_SHARD || x->dim != shape_of(w, which)->rank - 1 || x->unit % sn_dtypes[form].block == 0) return SN_OK;
    return sn_fail(SN_ERR_PLAN, "%s: %s %s: shards of %d columns would cut the blocks of %s", w->g->name, sn_ops[w->n->op]->name,
                   w->n->name, x->unit, sn_dtype_name(form));
}

static bool is_last_of_several(const sn_shape *s, const sn_split_axis *x) {
    return x->kind == SN_SHARD && !sn_is_flat(x) && s->rank > 1 && x->dim == s->rank - 1;
}

bool sn_split_of_runs(const sn_shape *shape, const sn_split_axis *x, int ranks, int64_t run, sn_split_axis *out) {
    int64_t inner = 1;
    *out = *x;
    if (x->kind != SN_SHARD) return true;
    *out = (sn_split_axis){.kind = SN_WHOLE};
    if (sn_is_flat(x) || x->at == SN_DEAL_FOLDED) return false;
    for (int d = x->dim + 1; d < shape->rank; d++) inner *= shape->d[d];
    const int64_t n = x->at == SN_DEAL_THIRDS ? shape->d[x->dim] / 3 : shape->d[x->dim], share = sn_full_share(n, x, ranks);
    const bool last = is_last_of_several(shape, x);
    if ((!last && x->dim) || share * inner % run || ((last || x->at == SN_DEAL_THIRDS) && n * inner % run)) return false;
    *out = (sn_split_axis){.kind = SN_SHARD, .dim = x->dim, .at = x->at, .unit = (int32_t)(share * inner / run)};
    return true;
}

sn_shape sn_shape_of_runs(const sn_shape *shape, const sn_split *split, int64_t run) {
    sn_shape s = *shape;
    int64_t n = 1;
    for (int d = 0; d < s.rank; d++) n *= s.d[d];
    for (int a = 0; a < SN_MESH_AXES; a++) {
        if (!is_last_of_several(shape, &split->axis[a]) || s.d[s.rank - 1] % run) continue;
        s.d[s.rank - 1] /= run;
        return s;
    }
    return sn_shape_of((n + run - 1) / run);
}

/* What has one element for each run of operand 0, which comes as `of`, comes alike. */
static sn_status runs_input(const work *w, int i, const sn_split_axis *of, sn_split_axis *wanted) {
    const sn_op *op = sn_ops[w->n->op];
    if (sn_split_of_runs(shape_of(w, 0), of, w->g->job->mesh.size[w->a], op->flat_run, wanted)) return SN_OK;
    return sn_fail(SN_ERR_PLAN, "%s: %s %s: shards of %d along dimension %d would cut input %d's runs of %d elements", w->g->name, op->name,
                   w->n->name, of->unit, of->dim, i, op->flat_run);
}

static sn_status infer_inputs(const work *w, char letter, int from, const sn_split_axis *shard) {
    sn_split_axis first = {.kind = SN_WHOLE};
    for (int i = 0; i < w->n->n_in; i++) {
        if (w->n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(w->g, w->n, i, w->a), wanted = {.kind = SN_WHOLE};
        int count = 0, dim = -1;
        const char *letters = w->axes ? letters_of(w->axes, w->n->n_in, i, &count) : "";
        if (letter) dim = find_letter(letters, count, letter);
        if (dim >= 0) SN_TRY(scale_shard(w, from, shard, i, dim, &wanted));
        if (!i) first = wanted;
        if (sn_ops[w->n->op]->flat_runs_in >> i & 1) SN_TRY(runs_input(w, i, &first, &wanted));
        SN_TRY(check_blocks(w, i, &wanted));
        if (!sn_axis_equal(&x, &wanted)) want(w->g, w->n, i, w->a, wanted);
    }
    return SN_OK;
}

/* ---- Some ranks only ---- */

/* Leaves of *here what x is at too. Where they have nothing in common *here stays, and x is moved. */
static void narrow(sn_split_axis *here, const sn_split_axis *x) {
    if (x->kind != SN_AT) return;
    if (here->kind != SN_AT) *here = *x;
    else if (!sn_axis_within(here, x) && sn_axis_holds(x, here->at)) *here = sn_at(here->at);
    else if (!sn_axis_within(here, x) && sn_axis_holds(x, here->also)) *here = sn_at(here->also);
}

/* Where a node runs on axis a: where its persistent values are, else where what it reads is. What is added to a summand, which
 * each rank has, is added once. */
static sn_split_axis place_of(const sn_graph *g, const sn_node *n, int a) {
    sn_split_axis here = n->is_placed ? n->where.axis[a] : (sn_split_axis){.kind = SN_WHOLE};
    bool summand = false;
    for (int persistent = 1; persistent >= 0; persistent--) {
        for (int o = 0; persistent && o < n->n_out; o++)
            if (n->out[o] != SN_NONE && g->values[n->out[o]].persistent != SN_NONE) narrow(&here, &g->values[n->out[o]].rest.split.axis[a]);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i].value == SN_NONE) continue;
            const sn_value *v = &g->values[n->in[i].value];
            if ((v->persistent != SN_NONE) != persistent) continue;
            narrow(&here, persistent ? &v->rest.split.axis[a] : &v->result.axis[a]);
            summand |= (sn_ops[n->op]->mutates >> i & 1) && v->result.axis[a].kind == SN_PARTIAL;
        }
    }
    return summand && here.kind == SN_AT ? sn_at(here.at) : here;
}

/* A node that runs on some ranks only takes its operands there, and leaves its results there. */
static bool infer_place(sn_graph *g, sn_node *n, int a) {
    if (sn_ops[n->op]->comm_axis && n->is_placed && n->attrs.i[sn_ops[n->op]->comm_axis - 1] == a)
        return true; /* it changes where things are */
    sn_split_axis here = place_of(g, n, a);
    n->where.axis[a] = here;
    if (here.kind != SN_AT) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(g, n, i, a);
        bool summand = x.kind == SN_PARTIAL && sn_ops[n->op]->mutates >> i & 1;
        if (x.kind == SN_AT ? !sn_axis_within(&here, &x) : x.kind != SN_WHOLE && !summand)
            want(g, n, i, a, x.kind == SN_AT ? here : (sn_split_axis){.kind = SN_WHOLE});
    }
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE) continue;
        sn_value *v = &g->values[n->out[o]];
        v->result.axis[a] = v->persistent != SN_NONE ? v->rest.split.axis[a] : here;
    }
    return true;
}

static sn_status infer_node(sn_graph *g, sn_node *n, int a, const sn_split_axis *kept) {
    sn_call call;
    sn_node_call(g, n, &call);
    const sn_op *op = sn_ops[n->op];
    work w = {.g = g, .n = n, .a = a, .axes = op->axes ? op->axes(&call) : NULL, .call = &call, .kept = kept};
    for (int i = 0; i < n->n_in; i++) /* what was wanted before may be so no more */
        if (n->in[i].value != SN_NONE && n->in[i].has_split && !(n->in[i].pinned >> a & 1))
            n->in[i].split.axis[a] = resting(&g->values[n->in[i].value], a);
    if (infer_place(g, n, a) || infer_flat(g, n, a, op, w.axes) || infer_runs(&w) || infer_linear(&w)) return SN_OK;
    int from = 0;
    sn_split_axis shard = {0};
    char letter = choose_letter(&w, &from, &shard);
    SN_TRY(infer_inputs(&w, letter, from, &shard));
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE) continue;
        sn_split_axis x = {.kind = letter ? SN_PARTIAL : SN_WHOLE};
        int count, dim = -1;
        const char *letters = w.axes ? letters_of(w.axes, n->n_in, n->n_in + o, &count) : "";
        if (letter) dim = find_letter(letters, count, letter);
        if (dim >= 0) SN_TRY(scale_shard(&w, from, &shard, n->n_in + o, dim, &x));
        SN_TRY(check_blocks(&w, n->n_in + o, &x));
        if (x.kind == SN_WHOLE && g->values[n->out[o]].persistent != SN_NONE && g->values[n->out[o]].rest.split.axis[a].kind == SN_PARTIAL)
            return sn_fail(SN_ERR_PLAN, "%s: %s is to rest as a summand of each rank, and %s %s makes the whole", g->name,
                           g->values[n->out[o]].name, op->name, n->name);
        g->values[n->out[o]].result.axis[a] = x;
    }
    return SN_OK;
}

/* Of what ends in a persistent value as it is made, the shard (or summand) that rests there: its op may make that alone. */
static void find_kept(const sn_graph *g, int a, sn_split_axis *kept) {
    for (size_t v = 0; v < g->n_values; v++) kept[v] = (sn_split_axis){.kind = SN_WHOLE};
    for (size_t k = g->n_order; k-- > 0;) {
        const sn_node *n = &g->nodes[g->order[k]];
        sn_call call;
        sn_node_call(g, n, &call);
        const char *axes = sn_ops[n->op]->axes ? sn_ops[n->op]->axes(&call) : NULL;
        for (int t = 0; axes && t < n->n_in + n->n_out; t++) {
            bool input = t < n->n_in;
            sn_vid v = input ? n->in[t].value : n->out[t - n->n_in];
            if (v == SN_NONE || (input && !(sn_ops[n->op]->mutates >> t & 1))) continue;
            sn_split_axis x = g->values[v].persistent != SN_NONE ? g->values[v].rest.split.axis[a] : kept[v];
            int count;
            const char *letters = letters_of(axes, n->n_in, t, &count);
            for (int i = 0; ((x.kind == SN_SHARD && !sn_is_flat(&x)) || x.kind == SN_PARTIAL) && i < n->n_in; i++)
                if (i != t && n->in[i].value != SN_NONE && alike(axes, n->n_in, i, letters, count) &&
                    sn_shape_equal(&g->values[n->in[i].value].shape,
                                   &g->values[v].shape)) /* heads are as many columns in one, one in another */
                    kept[n->in[i].value] = x;
        }
    }
}

const char *sn_split_kind_name(sn_split_kind kind) {
    static const char *const names[] = {"whole", "shard", "partial", "at"};
    return names[kind];
}

int64_t sn_split_place(const sn_split *s, const sn_mesh *m, int rank, int dim, int64_t extent, int64_t local) {
    int64_t shares[SN_MESH_AXES];
    for (int a = 0; a < SN_MESH_AXES; a++) shares[a] = extent /= s->axis[a].kind == SN_SHARD && s->axis[a].dim == dim ? m->size[a] : 1;
    for (int a = SN_MESH_AXES - 1; a >= 0; a--) {
        const sn_split_axis *x = &s->axis[a];
        if (x->kind != SN_SHARD || x->dim != dim) continue;
        int64_t index = sn_mesh_index(m, rank, a), unit = sn_unit_of(x), turn = local / unit;
        if (x->at == SN_DEAL_FOLDED) local = (turn * m->size[a] + (turn % 2 ? m->size[a] - 1 - index : index)) * unit + local % unit;
        else local += index * shares[a];
    }
    return local;
}

sn_status sn_graph_infer_splits(sn_graph *g) {
    sn_split_axis *kept = sn_alloc((g->n_values + 1) * sizeof *kept);
    sn_status s = kept ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot infer the splits of %s", g->name);
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].persistent != SN_NONE && g->values[v].producer == SN_NONE) g->values[v].result = g->values[v].rest.split;
    for (int a = 0; s == SN_OK && a < SN_MESH_AXES; a++) {
        if (g->job->mesh.size[a] <= 1) continue;
        find_kept(g, a, kept);
        for (size_t k = 0; s == SN_OK && k < g->n_order; k++) s = infer_node(g, &g->nodes[g->order[k]], a, kept);
    }
    sn_free(kept);
    return s;
}
