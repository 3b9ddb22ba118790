/* Data parallelism: each rank computes its own rows of the batch; gradients come out partial over the dp axis of the
 * mesh (and the replica axis around it) and are summed in rank order. All inputs with a token axis are sharded; everything else follows
 * from the ops' index letters. */
#include <string.h>

#include "passes/pass.h"

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)recipe;
    const int ranks = sn_mesh_data_ranks(&cluster->mesh);
    if (ranks <= 1) return SN_OK;
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        if (!sn_role_trains(g->role) && g->role != SN_ROLE_EVALUATE) continue;
        for (size_t i = 0; i < g->n_values; i++) {
            sn_value *v = &g->values[i];
            if (!v->input || v->shape.d[0] % ranks || !strcmp(v->name, "scale") || !strcmp(v->name, "key")) continue;
            for (int a = SN_MESH_REPLICA; a <= SN_MESH_DP; a++)
                if (cluster->mesh.size[a] > 1) v->result.axis[a] = (sn_split_axis){.kind = SN_SHARD, .dim = 0, .unit = 1};
        }
        SN_TRY(sn_graph_infer_splits(g));
    }
    return SN_OK;
}

const sn_pass sn_pass_data_parallel = {
    .name = "data_parallel", .saves = "rows spread over ranks; gradients are summed in rank order", .run = run};
