/* The table of passes and how it is run. */
#include <string.h>

#include "passes/pass.h"

const sn_pass *const sn_passes[] = {
#define SN_PASS(id) &sn_pass_##id,
#include "passes/passes.def"
#undef SN_PASS
};
const size_t sn_n_passes = sizeof sn_passes / sizeof sn_passes[0];

const char *sn_choice_kind_name(sn_choice_kind kind) {
    static const char *const names[] = {[SN_CHOICE_EXACT] = "exact", [SN_CHOICE_REORDERED] = "reordered", [SN_CHOICE_LOSSY] = "lossy"};
    return names[kind];
}

const char *sn_passes_folder(const sn_options *recipe, const char **key) {
    const char *folder = NULL;
    if (key) *key = "";
    for (size_t i = 0; i < sn_n_passes; i++) {
        if (!sn_passes[i]->folder_key) continue;
        if (key) *key = sn_passes[i]->folder_key;
        folder = sn_options_string(recipe, sn_passes[i]->folder_key);
    }
    return folder ? folder : "";
}

bool sn_choice_setting(const sn_choice *choice, size_t i, const char **key, const char **value) {
    size_t n = sizeof choice->also / sizeof choice->also[0];
    *key = i ? 2 * (i - 1) < n ? choice->also[2 * (i - 1)] : NULL : choice->key;
    *value = i ? *key ? choice->also[2 * (i - 1) + 1] : NULL : choice->value;
    return *key != NULL;
}

bool sn_choice_made(const sn_choice *choice, const sn_options *recipe) {
    const char *key, *value;
    for (size_t i = 0; sn_choice_setting(choice, i, &key, &value); i++)
        if (!sn_options_is(recipe, key, value)) return false;
    return true;
}

bool sn_choice_applies(const sn_pass *p, const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    if (p->decided && p->decided(recipe)) return false;
    return !sn_choice_made(choice, recipe) && (!p->offers || p->offers(recipe, cluster, choice));
}

sn_status sn_passes_mesh(const sn_options *recipe, int ranks, int nodes, sn_mesh *mesh) {
    int64_t left = ranks;
    *mesh = sn_mesh_alone();
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        if (!p->mesh_key) continue;
        int64_t n = sn_options_int(recipe, p->mesh_key);
        if (n < 1 || left % n)
            return sn_fail(SN_ERR_USAGE, "%s is %lld, which does not divide %lld rank%s%s", p->mesh_key, (long long)n, (long long)left,
                           left == 1 ? "" : "s", left == ranks ? "" : " that the other axes leave");
        mesh->size[p->mesh_axis] = (int)n;
        left /= n;
    }
    mesh->size[SN_MESH_DP] = (int)left;
    for (size_t i = 0; i < sn_n_passes; i++) {
        int n = 1;
        if (!sn_passes[i]->replicas) continue;
        SN_TRY(sn_passes[i]->replicas(recipe, mesh, nodes, &n));
        mesh->size[SN_MESH_REPLICA] *= n;
        mesh->size[SN_MESH_DP] /= n;
    }
    return SN_OK;
}

sn_status sn_passes_check(const sn_options *recipe) {
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_conflicts; k++)
            if (sn_passes[i]->conflicts[k].holds(recipe)) return sn_fail(SN_ERR_PLAN, "%s", sn_passes[i]->conflicts[k].reason);
    return SN_OK;
}

static bool listed(const char *name, const char *list) {
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, n) && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

sn_status sn_passes_run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, const char *skip) {
    SN_TRY(sn_passes_check(recipe));
    job->mesh = cluster->mesh;
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        if (!listed(p->name, skip)) {
            sn_status s = p->run(job, recipe, cluster);
            if (s != SN_OK) return sn_fail_in(s, "pass %s", p->name);
            for (int k = 0; k < job->n_graphs; k++) {
                s = sn_graph_verify(job->graphs[k]);
                if (s != SN_OK) return sn_fail_in(s, "after pass %s", p->name);
            }
        }
        if (stop_after && !strcmp(stop_after, p->name)) break;
    }
    sn_job_settle(job);
    return SN_OK;
}

void sn_replace_uses(sn_graph *g, sn_vid from, sn_vid to, size_t first) {
    for (size_t k = first; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value == from) n->in[i].value = to;
    }
}

static void stamp(sn_graph *g, sn_nid n, const char *pass) {
    g->made_by = pass;
    g->layer = g->nodes[n].layer;
    g->part = (sn_part)g->nodes[n].part;
    g->phase = (sn_phase)g->nodes[n].phase;
    g->where = g->nodes[n].where;
}

sn_status sn_push(sn_graph *g, sn_nid n) {
    if (SN_GROW(g->order, g->n_order, g->cap_order) != SN_OK) return sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
    g->order[g->n_order++] = n;
    return SN_OK;
}

uint32_t *sn_count_uses(const sn_graph *g) {
    uint32_t *uses = sn_alloc_zero(g->n_values + 1, sizeof *uses);
    if (!uses) sn_fail(SN_ERR_NO_MEMORY, "cannot count uses");
    for (size_t k = 0; uses && k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) uses[n->in[i].value]++;
    }
    return uses;
}

void sn_insert_before(sn_graph *g, sn_nid n, const char *pass) {
    stamp(g, n, pass);
    g->insert_at = sn_graph_position(g, n);
}

void sn_insert_after(sn_graph *g, sn_nid n, const char *pass) {
    stamp(g, n, pass);
    g->insert_at = sn_graph_position(g, n) + 1;
}

void sn_insert_like(sn_graph *g, sn_nid n, const char *pass) {
    stamp(g, n, pass);
    g->insert_at = SIZE_MAX;
}

void sn_insert_at_end(sn_graph *g, const char *pass) {
    g->made_by = pass;
    g->layer = -1;
    g->part = SN_PART_NONE;
    g->where = (sn_split){0};
    g->insert_at = SIZE_MAX;
}
