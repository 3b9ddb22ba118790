#include "engine/checkpoint.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/turns.h"
#include "io/safetensors.h"

/* What a checkpoint holds. A 16-bit weight is made from its master again, but is kept too: the file stays whole. turn: whose states there
 * are. */
static bool is_state(const sn_job *job, sn_pid p, int32_t turn) {
    const sn_persistent *e = &job->persistent[p];
    const int32_t own = sn_job_turn(job, p);
    if (e->class_of == SN_CLASS_OPTIMIZER) return e->parent != SN_NONE && (own < 0 || own == turn);
    return e->class_of == SN_CLASS_WEIGHTS && e->trainable && (sn_job_master(job, p) == SN_NONE || e->rest.form != SN_F32);
}

uint64_t sn_checkpoint_bytes(const sn_job *job) {
    uint64_t most = 0;
    for (int32_t turn = 0; turn == 0 || turn < job->turns.count; turn++) {
        uint64_t sum = 0;
        for (size_t p = 0; p < job->n_persistent; p++) {
            const sn_persistent *e = &job->persistent[p];
            size_t bytes;
            if (is_state(job, (sn_pid)p, turn) && sn_shape_bytes(&e->shape, e->rest.form, &bytes)) sum += bytes;
        }
        if (sum > most) most = sum;
    }
    return most + 65536; /* names, manifest */
}

/* The next part of at most `left` bytes that goes through the transient arena. */
static size_t part_of(const sn_run *run, size_t left, char **stage) {
    uint64_t room;
    *stage = sn_run_transient(run, &room);
    return left < room ? left : (size_t)room;
}

static sn_status write_part(sn_run *run, sn_pid p, const sn_extent *part, sn_st_writer *w, size_t index, uint32_t *crc) {
    char *data = sn_run_persistent(run, p), *stage;
    for (size_t at = 0, n; at < part->bytes; at += n) {
        n = data ? part->bytes : part_of(run, part->bytes - at, &stage);
        if (!data) SN_TRY(sn_run_read(run, p, part->here + at, stage, n));
        *crc = sn_crc32c(*crc, data ? data + part->here : stage, n);
        SN_TRY(sn_st_write(w, index, part->whole + at, data ? data + part->here : stage, n));
    }
    return SN_OK;
}

static sn_status read_part(sn_run *run, sn_pid p, const sn_extent *part, const sn_st *st, const sn_st_tensor *t) {
    char *data = sn_run_persistent(run, p), *stage;
    for (size_t at = 0, n; at < part->bytes; at += n) {
        n = data ? part->bytes : part_of(run, part->bytes - at, &stage);
        SN_TRY(sn_st_read(st, t, part->whole + at, data ? data + part->here : stage, n));
        if (!data) SN_TRY(sn_run_write(run, p, part->here + at, stage, n));
    }
    return SN_OK;
}

/* What one process wrote of one tensor. */
typedef struct note {
    uint64_t bytes;
    uint32_t crc, unused;
} note;

/* This process's pieces; what several ranks hold alike is the lowest one's to write. */
static sn_status write_pieces(const sn_session *s, int32_t turn, sn_st_writer *w, note *notes) {
    const sn_job *job = s->job;
    size_t index = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        if (!is_state(job, (sn_pid)p, turn)) continue;
        note *n = &notes[index++];
        size_t bytes;
        sn_run *holder;
        for (int i = 0; sn_session_piece(s, (sn_pid)p, i, &holder, &bytes); i++) {
            for (sn_extent part = {0}; sn_session_part(s, holder, (sn_pid)p, &part);)
                SN_TRY(write_part(holder, (sn_pid)p, &part, w, index - 1, &n->crc));
            n->bytes += bytes;
        }
    }
    return SN_OK;
}

/* The checksum of a tensor that was written in parts here and there: of what the file holds. */
static sn_status read_back(const sn_session *s, const sn_st_writer *w, size_t index, uint64_t bytes, uint32_t *crc) {
    char *stage;
    *crc = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = part_of(s->run, bytes - at, &stage);
        SN_TRY(sn_st_write_read(w, index, at, stage, n));
        *crc = sn_crc32c(*crc, stage, n);
    }
    return SN_OK;
}

/* The manifest's entries, and the file under its name: by rank 0, when all have written. */
static sn_status finish_state(const sn_session *s, int32_t turn, sn_st_writer *w, const note *notes, int ranks, sn_str *tensors) {
    size_t index = 0;
    for (size_t p = 0; p < s->job->n_persistent; p++) {
        const char *name = s->job->persistent[p].name;
        uint64_t bytes = 0;
        uint32_t crc = 0;
        if (!is_state(s->job, (sn_pid)p, turn)) continue;
        for (int r = 0; r < ranks; r++) {
            const note *n = &notes[(size_t)r * w->tensor_count + index];
            crc = sn_crc32c_join(crc, n->crc, n->bytes);
            bytes += n->bytes;
            if (r) sn_st_write_count(w, index, n->bytes);
        }
        if (!sn_session_in_order(s, (sn_pid)p)) SN_TRY(read_back(s, w, index, bytes, &crc));
        index++;
        sn_str_printf(tensors, "%s\n    ", index > 1 ? "," : "");
        sn_str_json(tensors, name, strlen(name));
        sn_str_printf(tensors, ": {\"bytes\": %llu, \"crc32c\": %u}", (unsigned long long)bytes, crc);
    }
    return sn_st_write_finish(w);
}

static sn_status agree(const sn_session *s, sn_status mine) { return s->world ? sn_world_agree(s->world, mine) : mine; }

/* `status`: of what came before. Rank 0 makes the file, all write their pieces into it, rank 0 finishes it. */
static sn_status write_state(const sn_session *s, int32_t turn, const char *path, sn_str *tensors, sn_status status) {
    sn_st_writer w = {0};
    const sn_job *job = s->job;
    const int ranks = s->world ? s->world->size : 1, rank = s->world ? s->world->rank : 0;
    if (status == SN_OK) status = sn_st_write_open(path, &w);
    for (size_t p = 0; status == SN_OK && p < job->n_persistent; p++)
        if (is_state(job, (sn_pid)p, turn))
            status = sn_st_add_tensor(&w, job->persistent[p].name, job->persistent[p].rest.form, &job->persistent[p].shape);
    const size_t own = w.tensor_count * sizeof(note);
    note *notes = sn_alloc_zero((size_t)ranks + 1, own);
    if (status == SN_OK && !notes) status = sn_fail(SN_ERR_NO_MEMORY, "cannot note what is written");
    if (status == SN_OK && !rank) status = sn_st_write_begin(&w);
    status = agree(s, status);
    if (status == SN_OK && rank) status = sn_st_write_join(&w);
    if (status == SN_OK) status = write_pieces(s, turn, &w, notes + (size_t)ranks * w.tensor_count);
    if (status == SN_OK && rank) status = sn_st_write_leave(&w);
    status = agree(s, status);
    if (status == SN_OK && s->world) sn_world_gather(s->world, notes + (size_t)ranks * w.tensor_count, own, notes);
    else if (status == SN_OK) memcpy(notes, notes + w.tensor_count, own);
    if (status == SN_OK && !rank) status = finish_state(s, turn, &w, notes, ranks, tensors);
    sn_st_write_close(&w);
    sn_free(notes);
    return status;
}

/* Keeps the newest `keep` up to `current`. What is newer was passed over as torn, or is of a run that was given up. */
static void remove_old(const char *out_dir, int64_t keep, long current) {
    for (;;) {
        DIR *dir = opendir(out_dir);
        long oldest = -1, newest = -1;
        int64_t count = 0;
        if (!dir) return;
        for (struct dirent *e; (e = readdir(dir));) {
            char *end;
            if (strncmp(e->d_name, "checkpoint-", 11)) continue;
            long n = strtol(e->d_name + 11, &end, 10);
            if (*end) continue;
            count++;
            if (oldest < 0 || n < oldest) oldest = n;
            if (n > newest) newest = n;
        }
        closedir(dir);
        if (newest <= current && (keep <= 0 || count <= keep)) return;
        char name[64];
        snprintf(name, sizeof name, "checkpoint-%ld", newest > current ? newest : oldest);
        if (newest > current) sn_warn("%s is of a later step than the run is at: it is removed", name);
        char *path = sn_path_join(out_dir, name);
        sn_status s = path ? sn_remove_tree(path) : SN_ERR_NO_MEMORY;
        sn_free(path);
        if (s != SN_OK) {
            sn_warn("cannot remove the old checkpoint %s: %s", name, sn_error_text());
            return;
        }
    }
}

sn_status sn_checkpoint_save(const sn_session *s, const char *out_dir, const sn_counters *c, const char *digest, int64_t keep) {
    sn_str final = {0}, partial = {0}, state = {0}, manifest = {0}, text = {0}, tensors = {0};
    sn_str_printf(&final, "%s/checkpoint-%lld", out_dir, (long long)c->batch_step);
    sn_str_printf(&partial, "%s.partial", final.data);
    sn_str_printf(&state, "%s/state.safetensors", partial.data);
    sn_str_printf(&manifest, "%s/manifest.json", partial.data);
    bool named = !final.failed && !partial.failed && !state.failed && !manifest.failed;
    sn_status status = named ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot name a checkpoint");
    const bool writes = !s->world || !s->world->rank;
    if (status == SN_OK && writes) status = sn_remove_tree(partial.data);
    if (status == SN_OK && writes) status = sn_make_dirs(partial.data);
    status = write_state(s, sn_turn_in_progress(s->job, c->update_step), state.data, &tensors, status);
    if (status == SN_OK && writes) {
        sn_str_printf(&text,
                      "{\n  \"version\": 1,\n  \"batch_step\": %lld,\n  \"update_step\": %lld,\n  \"loss_scale\": %.17g,\n  "
                      "\"scale_growth\": %lld,\n",
                      (long long)c->batch_step, (long long)c->update_step, c->loss_scale, (long long)c->scale_growth);
        if (isfinite(c->first_loss)) sn_str_printf(&text, "  \"first_loss\": %.17g,\n", c->first_loss);
        sn_str_printf(&text, "  \"tokens\": %lld,\n  \"epoch\": %llu,\n  \"position\": %llu,\n  \"digest\": ", (long long)c->tokens,
                      (unsigned long long)c->cursor.epoch, (unsigned long long)c->cursor.position);
        sn_str_json(&text, digest, strlen(digest));
        sn_str_printf(&text, ",\n  \"tensors\": {%s\n  }\n}\n", tensors.data ? tensors.data : "");
        if (text.failed || tensors.failed) status = sn_fail(SN_ERR_NO_MEMORY, "cannot write a manifest");
    }
    if (status == SN_OK && writes) status = sn_file_replace(manifest.data, text.data, text.size);
    if (status == SN_OK && writes) status = sn_remove_tree(final.data);
    if (status == SN_OK && writes && rename(partial.data, final.data)) status = sn_fail(SN_ERR_FILE, "cannot rename %s", partial.data);
    if (status == SN_OK && writes) status = sn_sync_dir(out_dir);
    status = agree(s, status);
    if (status == SN_OK && writes) remove_old(out_dir, keep, (long)c->batch_step);
    else if (named && writes) sn_remove_tree(partial.data);
    sn_str_free(&final);
    sn_str_free(&partial);
    sn_str_free(&state);
    sn_str_free(&manifest);
    sn_str_free(&text);
    sn_str_free(&tensors);
    return status;
}

/* The newest checkpoint older than `before`; -1: none. */
static long newest_before(const char *out_dir, long before) {
    DIR *dir = opendir(out_dir);
    long newest = -1;
    if (!dir) return -1;
    for (struct dirent *e; (e = readdir(dir));) {
        char *end;
        if (strncmp(e->d_name, "checkpoint-", 11)) continue;
        long n = strtol(e->d_name + 11, &end, 10);
        if (!*end && n > newest && n < before) newest = n;
    }
    closedir(dir);
    return newest;
}

/* Reads a tensor through the staging area and compares its checksum, so that a torn one never reaches the weights. */
static sn_status check_tensor(const sn_session *s, const sn_st *st, const sn_st_tensor *t, const char *path, size_t bytes,
                              const json_t *entry) {
    char *stage;
    uint32_t crc = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = part_of(s->run, bytes - at, &stage);
        SN_TRY(sn_st_read(st, t, at, stage, n));
        crc = sn_crc32c(crc, stage, n);
    }
    if (crc != (uint32_t)json_integer_value(json_object_get(entry, "crc32c")))
        return sn_fail(SN_ERR_FORMAT, "%s: %s does not match its checksum", path, t->name);
    return SN_OK;
}

/* Whether a tensor is this value: of one element for each run of its parent the elements are the same ones however they are shaped. */
static bool is_alike(const sn_st_tensor *t, const sn_persistent *e) {
    int64_t theirs, own;
    if (t->dtype != e->rest.form) return false;
    if (!e->state_run) return sn_shape_equal(&t->shape, &e->shape);
    return sn_shape_elements(&t->shape, &theirs) && sn_shape_elements(&e->shape, &own) && theirs == own;
}

static sn_status unlike(const char *path, const sn_st_tensor *t, const sn_persistent *e) {
    char theirs[96], own[96];
    return sn_fail(SN_ERR_USAGE, "%s: %s was saved as %s %s, and is %s %s under this recipe, at these ranks", path, e->name,
                   sn_dtype_name(t->dtype), sn_shape_text(&t->shape, theirs), sn_dtype_name(e->rest.form), sn_shape_text(&e->shape, own));
}

/* Two rounds over all tensors: the first checks, each process its share of them; the second loads this rank's part. */
static sn_status read_state(const sn_session *s, int32_t turn, const char *path, const json_t *tensors) {
    sn_st st;
    const sn_job *job = s->job;
    sn_status opened = sn_st_open(path, &st), status = agree(s, opened);
    const size_t ranks = s->world ? (size_t)s->world->size : 1, rank = s->world ? (size_t)s->world->rank : 0;
    for (size_t i = 0; i < 2 * job->n_persistent; i++) {
        size_t p = i % job->n_persistent;
        if (i == job->n_persistent) status = agree(s, status);
        if (status != SN_OK || !is_state(job, (sn_pid)p, turn)) continue;
        const sn_persistent *e = &job->persistent[p];
        const sn_st_tensor *t = sn_st_find(&st, e->name);
        const json_t *entry = json_object_get(tensors, e->name);
        size_t bytes = t ? (size_t)t->bytes : 0;
        sn_extent part = {0};
        if (!t || !entry) status = sn_fail(SN_ERR_FORMAT, "%s lacks %s: was it saved under another recipe?", path, e->name);
        else if (!is_alike(t, e)) status = unlike(path, t, e);
        else if (i < job->n_persistent) status = p % ranks == rank ? check_tensor(s, &st, t, path, bytes, entry) : SN_OK;
        else
            while (status == SN_OK && sn_session_part(s, s->run, (sn_pid)p, &part)) status = read_part(s->run, (sn_pid)p, &part, &st, t);
    }
    if (opened == SN_OK) sn_st_close(&st);
    return status;
}

static sn_status load_one(const sn_session *s, const char *folder, sn_counters *c, const char *digest, bool *torn) {
    json_error_t error;
    char *manifest = sn_path_join(folder, "manifest.json"), *state = sn_path_join(folder, "state.safetensors");
    sn_status status = manifest && state ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    json_t *root = status == SN_OK ? json_load_file(manifest, JSON_REJECT_DUPLICATES, &error) : NULL;
    *torn = true;
    if (status == SN_OK && !root) status = sn_fail(SN_ERR_FORMAT, "%s: %s", manifest, error.text);
    if (status == SN_OK) {
        const char *theirs = json_string_value(json_object_get(root, "digest"));
        c->batch_step = json_integer_value(json_object_get(root, "batch_step"));
        c->update_step = json_integer_value(json_object_get(root, "update_step"));
        c->loss_scale = json_number_value(json_object_get(root, "loss_scale"));
        c->scale_growth = json_integer_value(json_object_get(root, "scale_growth"));
        c->first_loss = json_object_get(root, "first_loss") ? json_number_value(json_object_get(root, "first_loss")) : NAN;
        c->tokens = json_integer_value(json_object_get(root, "tokens"));
        c->cursor = (sn_data_cursor){.batch_step = (uint64_t)c->batch_step,
                                     .epoch = (uint64_t)json_integer_value(json_object_get(root, "epoch")),
                                     .position = (uint64_t)json_integer_value(json_object_get(root, "position"))};
        if (theirs && strcmp(theirs, digest)) {
            *torn = false;
            status = sn_fail(SN_ERR_USAGE, "%s was saved with other data or another recipe (%s, now %s)", folder, theirs, digest);
        }
    }
    status = agree(s, status);
    if (status == SN_OK) {
        status = agree(s, read_state(s, sn_turn_in_progress(s->job, c->update_step), state, json_object_get(root, "tensors")));
        *torn = status != SN_ERR_USAGE;
    }
    json_decref(root);
    sn_free(manifest);
    sn_free(state);
    return status;
}

sn_status sn_checkpoint_load(const sn_session *s, const char *out_dir, sn_counters *c, const char *digest, bool *found) {
    *found = false;
    for (long n = newest_before(out_dir, __LONG_MAX__); n >= 0; n = newest_before(out_dir, n)) {
        char name[64];
        bool torn;
        snprintf(name, sizeof name, "checkpoint-%ld", n);
        char *folder = sn_path_join(out_dir, name);
        if (!folder) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
        sn_counters found_counters = *c;
        sn_status status = load_one(s, folder, &found_counters, digest, &torn);
        sn_free(folder);
        if (status == SN_OK) {
            *c = found_counters;
            *found = true;
            return SN_OK;
        }
        if (!torn) return status;
        sn_warn("checkpoint-%ld is passed over: %s", n, sn_error_text());
    }
    return SN_OK;
}
