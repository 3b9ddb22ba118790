#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"

const char *sn_role_name(sn_role role) {
    static const char *const names[] = {"train", "train_next", "update", "evaluate", "logits", "generate", "load"};
    return (unsigned)role < sizeof names / sizeof names[0] ? names[role] : "?";
}

static sn_status no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a graph"); }

/* The job and its table of persistent values */

sn_status sn_job_new(sn_job **out) {
    *out = sn_alloc_zero(1, sizeof **out);
    if (!*out) return no_memory();
    (*out)->mesh = sn_mesh_alone();
    return SN_OK;
}

static void free_graph(sn_graph *g) {
    sn_free(g->values);
    sn_free(g->nodes);
    sn_free(g->order);
    sn_free(g->of_persistent);
    sn_free(g);
}

void sn_job_remove_graph(sn_job *job, sn_graph *g) {
    int kept = 0;
    for (int i = 0; i < job->n_graphs; i++)
        if (job->graphs[i] != g) job->graphs[kept++] = job->graphs[i];
    job->n_graphs = kept;
    free_graph(g);
}

void sn_job_free(sn_job *job) {
    if (!job) return;
    for (int i = 0; i < job->n_graphs; i++) free_graph(job->graphs[i]);
    sn_free(job->persistent);
    sn_free(job->files);
    sn_pool_free(&job->pool);
    sn_free(job);
}

size_t sn_job_bytes(const sn_job *job) {
    size_t sum = job->pool.total + job->n_persistent * sizeof *job->persistent;
    for (int i = 0; i < job->n_graphs; i++) {
        const sn_graph *g = job->graphs[i];
        sum += g->n_values * sizeof *g->values + g->n_nodes * sizeof *g->nodes + g->n_order * sizeof *g->order +
               g->n_of_persistent * sizeof *g->of_persistent;
    }
    return sum;
}

void sn_job_settle(sn_job *job) {
    SN_SHRINK(job->persistent, job->n_persistent, job->cap_persistent);
    for (int i = 0; i < job->n_graphs; i++) {
        sn_graph *g = job->graphs[i];
        SN_SHRINK(g->values, g->n_values, g->cap_values);
        SN_SHRINK(g->nodes, g->n_nodes, g->cap_nodes);
        SN_SHRINK(g->order, g->n_order, g->cap_order);
    }
}

sn_graph *sn_job_add_graph(sn_job *job, const char *name, sn_role role) {
    if (job->n_graphs == SN_MAX_PROGRAMS) {
        sn_fail(SN_ERR_INTERNAL, "a job holds at most %d programs", SN_MAX_PROGRAMS);
        return NULL;
    }
    sn_graph *g = sn_alloc_zero(1, sizeof *g);
    char *copy = sn_pool_strdup(&job->pool, name);
    if (!g || !copy) {
        sn_free(g);
        no_memory();
        return NULL;
    }
    *g = (sn_graph){
        .name = copy, .role = role, .job = job, .made_by = "model", .layer = -1, .insert_at = SIZE_MAX, .micro_batches = 1, .times = 1};
    return job->graphs[job->n_graphs++] = g;
}

int sn_job_graph_index(const sn_job *job, const char *name) {
    for (int i = 0; i < job->n_graphs; i++)
        if (!strcmp(job->graphs[i]->name, name)) return i;
    return -1;
}

int sn_job_role_index(const sn_job *job, sn_role role) {
    for (int i = 0; i < job->n_graphs; i++)
        if (job->graphs[i]->role == role) return i;
    return -1;
}

static void *copy_of(const void *items, size_t n, size_t size) {
    void *copy = sn_alloc(n * size);
    if (copy) memcpy(copy, items, n * size);
    return copy;
}

sn_graph *sn_job_copy_graph(const sn_graph *from, const char *name, sn_role role) {
    sn_graph *g = sn_job_add_graph(from->job, name, role);
    if (!g) return NULL;
    const char *own_name = g->name;
    *g = *from;
    g->name = own_name;
    g->role = role;
    g->cap_values = from->n_values;
    g->cap_nodes = from->n_nodes;
    g->cap_order = from->n_order;
    g->values = copy_of(from->values, from->n_values, sizeof *from->values);
    g->nodes = copy_of(from->nodes, from->n_nodes, sizeof *from->nodes);
    g->order = copy_of(from->order, from->n_order, sizeof *from->order);
    g->of_persistent = copy_of(from->of_persistent, from->n_of_persistent, sizeof *from->of_persistent);
    if (g->values && g->nodes && g->order && g->of_persistent) return g;
    no_memory();
    return NULL;
}

sn_graph *sn_job_graph(const sn_job *job, const char *name) {
    int i = sn_job_graph_index(job, name);
    return i < 0 ? NULL : job->graphs[i];
}

int sn_job_add_file(sn_job *job, const char *path) {
    for (size_t i = 0; i < job->n_files; i++)
        if (!strcmp(job->files[i].path, path)) return (int)i;
    char *copy = sn_pool_strdup(&job->pool, path);
    if (!copy || SN_GROW(job->files, job->n_files, job->cap_files) != SN_OK) {
        no_memory();
        return -1;
    }
    job->files[job->n_files].path = copy;
    return (int)job->n_files++;
}

sn_pid sn_job_add_persistent(sn_job *job, const char *name, sn_class class_of, sn_dtype form, sn_shape shape) {
    char *copy = sn_pool_strdup(&job->pool, name);
    if (!copy || SN_GROW(job->persistent, job->n_persistent, job->cap_persistent) != SN_OK) {
        no_memory();
        return SN_NONE;
    }
    job->persistent[job->n_persistent] = (sn_persistent){.name = copy,
                                                         .shape = shape,
                                                         .class_of = class_of,
                                                         .rest = {.form = form},
                                                         .layer = -1,
                                                         .source = {.file = -1},
                                                         .parent = SN_NONE,
                                                         .turn = -1,
                                                         .adapter_of = SN_NONE};
    return (sn_pid)job->n_persistent++;
}

sn_pid sn_job_find(const sn_job *job, const char *name) {
    for (size_t i = 0; i < job->n_persistent; i++)
        if (!strcmp(job->persistent[i].name, name)) return (sn_pid)i;
    return SN_NONE;
}

void sn_job_set_rest(sn_job *job, sn_pid p, sn_home rest) {
    job->persistent[p].rest = rest;
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        if (p >= g->n_of_persistent || g->of_persistent[p] == SN_NONE) continue;
        sn_value *v = &g->values[g->of_persistent[p]];
        v->rest = rest;
        v->dtype = rest.form;
        if (v->producer == SN_NONE) v->result = rest.split;
    }
}

void sn_job_derive(sn_job *job, sn_pid derived, sn_pid parameter) {
    sn_persistent *e = &job->persistent[derived];
    const sn_persistent *of = &job->persistent[parameter];
    e->parent = parameter;
    e->layer = of->layer;
    if (e->state_run) {
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (a != SN_MESH_DP)
                sn_split_of_runs(&of->shape, &of->rest.split.axis[a], job->mesh.size[a], e->state_run, &e->rest.split.axis[a]);
        return;
    }
    if (!sn_shape_equal(&e->shape, &of->shape)) return;
    memcpy(e->axes, of->axes, sizeof e->axes);
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (a != SN_MESH_DP) e->rest.split.axis[a] = of->rest.split.axis[a];
}

sn_pid sn_job_master(const sn_job *job, sn_pid weight) {
    static const char suffix[] = ".master";
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        size_t n = strlen(e->name), m = sizeof suffix - 1;
        if (e->parent == weight && e->class_of == SN_CLASS_OPTIMIZER && n > m && !strcmp(e->name + n - m, suffix)) return (sn_pid)i;
    }
    return SN_NONE;
}

sn_pid sn_job_adapter(const sn_job *job, sn_pid weight, sn_adapter_part part) {
    for (size_t i = 0; weight != SN_NONE && i < job->n_persistent; i++)
        if (job->persistent[i].adapter_of == weight && job->persistent[i].adapter_part == part) return (sn_pid)i;
    return SN_NONE;
}

bool sn_job_trains_adapters(const sn_job *job) {
    size_t adapters = 0;
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        if (e->class_of != SN_CLASS_WEIGHTS || !e->trainable) continue;
        if (e->adapter_of == SN_NONE) return false;
        adapters++;
    }
    return adapters > 0;
}

/* The builder */

static sn_vid stuck(sn_graph *g, sn_status s) {
    if (g->status == SN_OK) g->status = s;
    return SN_NONE;
}

const char *sn_name(sn_graph *g, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = sn_pool_strdup(&g->job->pool, text);
    if (!copy) stuck(g, no_memory());
    return copy;
}

static sn_vid add_value(sn_graph *g, sn_value v) {
    if (SN_GROW(g->values, g->n_values, g->cap_values) != SN_OK) return stuck(g, SN_ERR_NO_MEMORY);
    g->values[g->n_values] = v;
    return (sn_vid)g->n_values++;
}

sn_vid sn_input(sn_graph *g, const char *name, sn_dtype dtype, sn_shape shape) {
    if (g->status != SN_OK) return SN_NONE;
    sn_vid old = sn_graph_find(g, name);
    if (old != SN_NONE) return old;
    sn_value v = {
        .shape = shape, .dtype = dtype, .class_of = SN_CLASS_ACTIVATIONS, .persistent = SN_NONE, .input = true, .producer = SN_NONE};
    v.name = sn_name(g, "%s", name);
    v.rest = (sn_home){.tier = SN_TIER_HOST, .form = dtype};
    return v.name ? add_value(g, v) : SN_NONE;
}

sn_vid sn_use_persistent(sn_graph *g, sn_pid p) {
    if (g->status != SN_OK) return SN_NONE;
    if (p == SN_NONE) return stuck(g, SN_ERR_NO_MEMORY); /* sn_job_add_persistent failed, and left the message */
    if (p >= g->job->n_persistent) return stuck(g, sn_fail(SN_ERR_INTERNAL, "%s: no persistent value %u", g->name, p));
    if (p >= g->n_of_persistent) {
        size_t n = g->job->n_persistent + 64;
        sn_vid *map = sn_realloc(g->of_persistent, n * sizeof *map);
        if (!map) return stuck(g, no_memory());
        for (size_t i = g->n_of_persistent; i < n; i++) map[i] = SN_NONE;
        g->of_persistent = map;
        g->n_of_persistent = n;
    }
    if (g->of_persistent[p] != SN_NONE) return g->of_persistent[p];
    const sn_persistent *e = &g->job->persistent[p];
    sn_value v = {.name = e->name,
                  .shape = e->shape,
                  .dtype = e->rest.form,
                  .class_of = e->class_of,
                  .rest = e->rest,
                  .result = e->rest.split,
                  .persistent = p,
                  .producer = SN_NONE};
    return g->of_persistent[p] = add_value(g, v);
}

void sn_mark_output(sn_graph *g, sn_vid v, const char *name) {
    if (g->status != SN_OK) return;
    g->values[v].output = true;
    g->values[v].name = sn_name(g, "%s", name);
}

void sn_node_call(const sn_graph *g, const sn_node *n, sn_call *c) {
    *c = (sn_call){.n_in = n->n_in, .n_out = n->n_out, .attrs = n->attrs};
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE) {
            const sn_value *v = &g->values[n->in[i].value];
            c->in[i] = (sn_tensor){.shape = v->shape, .dtype = n->in[i].form < SN_DTYPE_COUNT ? (sn_dtype)n->in[i].form : v->dtype};
            if (n->in[i].slice_n) c->in[i].shape.d[0] = n->in[i].slice_n;
        }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != SN_NONE) c->out[i] = (sn_tensor){.shape = g->values[n->out[i]].shape, .dtype = g->values[n->out[i]].dtype};
}

/* A slice lies inside its value and, of a vector, at whole blocks of the form. */
static sn_status check_slices(const sn_graph *g, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        const sn_use *u = &n->in[i];
        if (u->value == SN_NONE || (!u->slice_n && !u->slice_at)) continue;
        const sn_value *v = &g->values[u->value];
        char text[96];
        if (!v->shape.rank || u->slice_at < 0 || u->slice_n < 1 || u->slice_at > v->shape.d[0] || u->slice_n > v->shape.d[0] - u->slice_at)
            return sn_fail(SN_ERR_INTERNAL, "%s: %s %s: input %d is %lld rows at %lld of %s %s: outside it", g->name, sn_ops[n->op]->name,
                           n->name, i, (long long)u->slice_n, (long long)u->slice_at, v->name ? v->name : "a value",
                           sn_shape_text(&v->shape, text));
        int block = sn_dtypes[v->dtype].block;
        if (v->shape.rank == 1 && (u->slice_at % block || u->slice_n % block))
            return sn_fail(SN_ERR_INTERNAL, "%s: %s %s: input %d is %lld elements at %lld of %s: no whole number of blocks of %s", g->name,
                           sn_ops[n->op]->name, n->name, i, (long long)u->slice_n, (long long)u->slice_at, v->name ? v->name : "a value",
                           sn_dtype_name(v->dtype));
    }
    return SN_OK;
}

static sn_status run_shape_rule(const sn_graph *g, const sn_node *n, sn_call *c) {
    const sn_op *op = sn_ops[n->op];
    SN_TRY(check_slices(g, n));
    sn_node_call(g, n, c);
    for (int i = 0; i < n->n_out; i++) c->out[i] = (sn_tensor){0};
    for (int i = 0; i < op->min_in; i++)
        if (i >= n->n_in || n->in[i].value == SN_NONE)
            return sn_fail(SN_ERR_INTERNAL, "%s: %s %s lacks input %d of %d", g->name, op->name, n->name, i, op->min_in);
    sn_status s = op->shape(c);
    return s == SN_OK ? s : sn_fail_in(s, "%s: %s %s", g->name, op->name, n->name);
}

static bool put_in_order(sn_graph *g, sn_nid id) {
    if (SN_GROW(g->order, g->n_order, g->cap_order) != SN_OK) return false;
    size_t at = g->insert_at > g->n_order ? g->n_order : g->insert_at;
    memmove(g->order + at + 1, g->order + at, (g->n_order - at) * sizeof *g->order);
    g->order[at] = id;
    g->n_order++;
    if (g->insert_at != SIZE_MAX) g->insert_at++;
    return true;
}

sn_nid sn_append_uses(sn_graph *g, sn_opcode opcode, const sn_attrs *attrs, int n_in, const sn_use *in, const char *name, sn_vid *out) {
    const sn_op *op = sn_ops[opcode];
    for (int i = 0; i < op->n_out; i++) out[i] = SN_NONE;
    if (g->status != SN_OK) return SN_NONE;
    if (n_in > op->max_in) return stuck(g, sn_fail(SN_ERR_INTERNAL, "%s takes at most %d inputs, not %d", op->name, op->max_in, n_in));
    sn_node n = {.op = opcode,
                 .n_in = (uint8_t)n_in,
                 .n_out = (uint8_t)op->n_out,
                 .phase = (uint8_t)g->phase,
                 .part = (uint8_t)g->part,
                 .layer = g->layer,
                 .where = g->where,
                 .name = sn_name(g, "%s", name ? name : op->name),
                 .made_by = g->made_by,
                 .origin = SN_NONE,
                 .site = g->next_site++,
                 .after = SN_NONE,
                 .held = SN_NONE};
    if (attrs) n.attrs = *attrs;
    for (int i = 0; i < SN_MAX_IN; i++) n.in[i] = i < n_in ? in[i] : sn_use_of(SN_NONE);
    for (int i = 0; i < n_in; i++)
        if (in[i].value != SN_NONE && in[i].value >= g->n_values)
            return stuck(g, sn_fail(SN_ERR_INTERNAL, "%s: input %d is no value", op->name, i));
    for (int i = 0; i < SN_MAX_OUT; i++) n.out[i] = SN_NONE;
    sn_call call;
    sn_status s = run_shape_rule(g, &n, &call);
    if (s != SN_OK) return stuck(g, s);
    sn_nid id = (sn_nid)g->n_nodes;
    for (int i = 0; i < op->n_out; i++)
        if (call.out[i].shape.rank > 0) {
            out[i] = n.out[i] = add_value(g, (sn_value){.shape = call.out[i].shape,
                                                        .dtype = call.out[i].dtype,
                                                        .class_of = SN_CLASS_ACTIVATIONS,
                                                        .rest = {.form = call.out[i].dtype},
                                                        .persistent = SN_NONE,
                                                        .producer = id});
            if (out[i] == SN_NONE) return SN_NONE;
            for (int a = 0; a < SN_MESH_AXES; a++)
                if (g->where.axis[a].kind == SN_AT) g->values[out[i]].result.axis[a] = g->where.axis[a];
        }
    if (SN_GROW(g->nodes, g->n_nodes, g->cap_nodes) != SN_OK || !put_in_order(g, id)) return stuck(g, SN_ERR_NO_MEMORY);
    g->nodes[g->n_nodes++] = n;
    return id;
}

sn_nid sn_append(sn_graph *g, sn_opcode opcode, const sn_attrs *attrs, int n_in, const sn_vid *in, const char *name, sn_vid *out) {
    sn_use uses[SN_MAX_IN];
    for (int i = 0; i < n_in && i < SN_MAX_IN; i++) uses[i] = sn_use_of(in[i]);
    return sn_append_uses(g, opcode, attrs, n_in, uses, name, out);
}

sn_vid sn_append1(sn_graph *g, sn_opcode opcode, const sn_attrs *attrs, int n_in, const sn_vid *in, const char *name) {
    sn_vid out[SN_MAX_OUT];
    sn_append(g, opcode, attrs, n_in, in, name, out);
    return out[0];
}

/* Changes and checks */

sn_status sn_graph_infer(sn_graph *g) {
    SN_TRY(g->status);
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        sn_call call;
        SN_TRY(run_shape_rule(g, n, &call));
        for (int i = 0; i < n->n_out; i++) {
            if (n->out[i] == SN_NONE) continue;
            sn_value *v = &g->values[n->out[i]];
            if (!v->has_rest) v->rest.form = call.out[i].dtype;
            v->dtype = call.out[i].dtype;
            v->shape = call.out[i].shape;
        }
    }
    return SN_OK;
}

size_t sn_graph_position(const sn_graph *g, sn_nid n) {
    for (size_t k = 0; k < g->n_order; k++)
        if (g->order[k] == n) return k;
    return SIZE_MAX;
}

sn_vid sn_graph_find(const sn_graph *g, const char *name) {
    for (size_t i = 0; i < g->n_values; i++)
        if ((g->values[i].input || g->values[i].output) && g->values[i].name && !strcmp(g->values[i].name, name)) return (sn_vid)i;
    return SN_NONE;
}

sn_status sn_graph_drop_unused(sn_graph *g) {
    bool *used = sn_alloc_zero(g->n_values, sizeof *used);
    if (!used) return no_memory();
    for (size_t k = g->n_order; k-- > 0;) {
        sn_node *n = &g->nodes[g->order[k]];
        bool keep = false;
        for (int i = 0; i < n->n_in; i++) keep |= n->in[i].value != SN_NONE && (sn_ops[n->op]->mutates >> i & 1);
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE) {
                const sn_value *v = &g->values[n->out[i]];
                keep |= used[n->out[i]] || v->output || v->persistent != SN_NONE;
            }
        n->dead = !keep;
        for (int i = 0; keep && i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) used[n->in[i].value] = true;
    }
    size_t kept = 0;
    for (size_t k = 0; k < g->n_order; k++)
        if (!g->nodes[g->order[k]].dead) g->order[kept++] = g->order[k];
    g->n_order = kept;
    sn_free(used);
    return SN_OK;
}

sn_status sn_graph_verify(const sn_graph *g) {
    SN_TRY(g->status);
    bool *defined = sn_alloc_zero(g->n_values, sizeof *defined);
    bool *placed = sn_alloc_zero(g->n_nodes, sizeof *placed);
    sn_status s = defined && placed ? SN_OK : no_memory();
    for (size_t i = 0; s == SN_OK && i < g->n_values; i++) defined[i] = g->values[i].producer == SN_NONE;
    for (size_t k = 0; s == SN_OK && k < g->n_order; k++) {
        sn_nid id = g->order[k];
        if (id >= g->n_nodes || g->nodes[id].dead || placed[id]) {
            s = sn_fail(SN_ERR_INTERNAL, "%s: position %zu of the order holds a node that is dead or stands there twice", g->name, k);
            break;
        }
        placed[id] = true;
        const sn_node *n = &g->nodes[id];
        const sn_op *op = sn_ops[n->op];
        for (int i = 0; s == SN_OK && i < n->n_in; i++) {
            sn_vid v = n->in[i].value;
            if (v == SN_NONE) continue;
            if (v >= g->n_values || !defined[v])
                s = sn_fail(SN_ERR_INTERNAL, "%s: %s %s (made by %s) uses input %d before it is defined", g->name, op->name, n->name,
                            n->made_by, i);
        }
        sn_call call;
        if (s == SN_OK) s = run_shape_rule(g, n, &call);
        for (int i = 0; s == SN_OK && i < n->n_out; i++) {
            if (n->out[i] == SN_NONE) continue;
            const sn_value *v = &g->values[n->out[i]];
            char a[96], b[96];
            if (!sn_shape_equal(&v->shape, &call.out[i].shape) || v->dtype != call.out[i].dtype)
                s = sn_fail(SN_ERR_INTERNAL, "%s: %s %s (made by %s) gives %s %s, the graph says %s %s", g->name, op->name, n->name,
                            n->made_by, sn_dtype_name(call.out[i].dtype), sn_shape_text(&call.out[i].shape, a), sn_dtype_name(v->dtype),
                            sn_shape_text(&v->shape, b));
            defined[n->out[i]] = true;
        }
    }
    sn_free(defined);
    sn_free(placed);
    return s;
}
