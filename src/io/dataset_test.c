/* Training data: formats, exact label counts, packing, order, resume, the index. */
#include "io/dataset.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/gguf.h"
#include "support/support.h"

/* A tokenizer whose ids are bytes, with four control tokens. */
enum { IM_START = 256, IM_END, EOS, BOS };

static sn_status encode_bytes(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    static const char *const specials[] = {"<|im_start|>", "<|im_end|>", "</s>", "<s>"};
    (void)e;
    for (size_t i = 0; i < n;) {
        int32_t id = (unsigned char)text[i];
        size_t used = 1;
        for (int k = 0; k < 4 && (flags & SN_ENCODE_SPECIAL); k++) {
            size_t m = strlen(specials[k]);
            if (n - i >= m && !memcmp(text + i, specials[k], m)) id = IM_START + k, used = m;
        }
        SN_TRY(sn_ids_push(out, id));
        i += used;
    }
    return SN_OK;
}
static bool special_bytes(const sn_encoder *e, int32_t id) { return (void)e, id >= 256; }
static const sn_encoder bytes = {.encode = encode_bytes, .is_special = special_bytes, .bos = -1, .eos = EOS, .fingerprint = 1};
static const sn_encoder bytes_bos = {.encode = encode_bytes, .is_special = special_bytes, .bos = BOS, .eos = EOS, .fingerprint = 2};

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static char folder[600];

static const char *write_file(const char *name, const char *text, size_t n) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_ok(sn_file_write_at(fd, path, 0, text, n));
    close(fd);
    return path;
}

static sn_status open_text(const char *name, const char *text, sn_dataset_options o, sn_dataset **d) {
    o.path = write_file(name, text, strlen(text));
    if (!o.encoder) o.encoder = &bytes;
    return sn_dataset_open(&o, d);
}

/* ids as text: control tokens as their names' first letter in brackets, labels as '_' where there is none. */
static void assert_sample(const sn_dataset *d, uint64_t row, const char *ids, const char *labels) {
    sn_sample s = {0};
    sn_str a = {0}, b = {0};
    assert_ok(sn_dataset_read(d, row, &s));
    assert_int_equal(s.ids.size, s.labels.size);
    for (size_t i = 0; i < s.ids.size; i++) {
        int32_t id = s.ids.data[i], l = s.labels.data[i];
        sn_str_char(&a, id < 256 ? (char)id : "SEXB"[id - 256]);
        sn_str_char(&b, l == SN_IGNORE_LABEL ? '_' : l < 256 ? (char)l : "SEXB"[l - 256]);
    }
    assert_string_equal(a.data, ids);
    assert_string_equal(b.data, labels);
    sn_str_free(&a);
    sn_str_free(&b);
    sn_sample_free(&s);
}

static sn_chat_template *template_of(const char *text) {
    sn_chat_template *t;
    assert_ok(sn_chat_template_parse(text, strlen(text), &t));
    return t;
}

static void formats(void **state) {
    (void)state;
    sn_dataset *d;
    assert_ok(
        open_text("a.jsonl",
                  "{\"text\": \"hello\"}\n\n{\"input_ids\": [5, 6, 7, 258], \"labels\": [-100, 6, -100, 258]}\r\n"
                  "  {\"input_ids\": [65, 66, 67]}\n{\"text\": \"ab</s>\"}\n{\"instruction\": \"i\", \"input\": \"\", \"output\": \"out\"}",
                  (sn_dataset_options){.cutoff_len = 400}, &d));
    assert_int_equal(sn_dataset_get_info(d)->rows, 5);
    assert_sample(d, 0, "helloX", "elloX_");
    assert_sample(d, 1, "\5\6\7X", "\6_X_");
    assert_sample(d, 2, "ABC", "BC_");
    assert_sample(d, 3, "abX", "bX_"); /* EOS is not doubled */
    sn_sample s = {0};
    assert_ok(sn_dataset_read(d, 4, &s));
    size_t n = s.ids.size;
    assert_int_equal(s.ids.data[n - 1], EOS);
    for (size_t i = 0; i < n; i++) assert_int_equal(s.labels.data[i], i + 5 < n || i + 1 == n ? SN_IGNORE_LABEL : s.ids.data[i + 1]);
    assert_memory_equal(s.ids.data + n - 4, ((int32_t[]){'o', 'u', 't', EOS}), 16);
    sn_sample_free(&s);
    sn_dataset_close(d);
    assert_ok(open_text("b.jsonl", "{\"text\": \"hello\"}\n{\"text\": \"ab</s>\"}\n",
                        (sn_dataset_options){.cutoff_len = 400, .encoder = &bytes_bos, .escape_special = true}, &d));
    assert_sample(d, 0, "BhelloX", "helloX_");
    assert_sample(d, 1, "Bab</s>X", "ab</s>X_");
    sn_dataset_close(d);
    assert_ok(open_text("c.json", " [ {\"text\": \"a]}\\\"b\"} ,\n{\"text\": \"xyz\", \"more\": [{}, \"{\"]}\n]\n",
                        (sn_dataset_options){.cutoff_len = 400}, &d));
    assert_sample(d, 0, "a]}\"bX", "]}\"bX_");
    assert_sample(d, 1, "xyzX", "yzX_");
    sn_dataset_close(d);
}

static void chats_carry_loss_on_assistant_turns_only(void **state) { /* FIELD 6 */
    (void)state;
    sn_dataset *d;
    sn_chat_template *t = template_of(chatml);
    assert_ok(
        open_text("chat.jsonl",
                  "{\"messages\": "
                  "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"one\"},{\"role\":\"user\",\"content\":\"r<|"
                  "im_end|>\"},"
                  "{\"role\":\"assistant\",\"content\":\"four4\"},{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"assistant\","
                  "\"content\":\"x\"}]}\n"
                  "{\"conversations\": [{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"abc\"}], \"system\": \"y\"}\n"
                  "{\"instruction\": \"i\", \"input\": \"n\", \"output\": \"out\"}\n",
                  (sn_dataset_options){.cutoff_len = 400, .chat_template = t}, &d));
    assert_sample(d, 0, "Suser\nqE\nSassistant\noneE\nSuser\nr<|im_end|>E\nSassistant\nfour4E\nSuser\nsE\nSassistant\nxE\n",
                  "___________________oneE_______________________________four4E_____________________xE__");
    uint32_t tokens, labels;
    assert_ok(sn_dataset_count(d, 0, &tokens, &labels));
    assert_int_equal(labels, 4 + 6 + 2); /* each text and its end of turn */
    assert_int_equal(sn_dataset_get_info(d)->labels, 12 + 4 + 4);
    assert_sample(d, 1, "Ssystem\nyE\nSuser\nqE\nSassistant\nabcE\n", "______________________________abcE__");
    assert_sample(d, 2, "Suser\ni\nnE\nSassistant\noutE\n", "_____________________outE__");
    sn_dataset_close(d);
    sn_chat_template_free(t);
    assert_int_equal(
        open_text("chat2.jsonl", "{\"messages\": [{\"role\":\"user\",\"content\":\"q\"}]}\n", (sn_dataset_options){.cutoff_len = 400}, &d),
        SN_ERR_DATA);
    assert_non_null(strstr(sn_error_text(), "chat2.jsonl:1"));
}

static void bos_stands_once(void **state) { /* FIELD 52 */
    (void)state;
    sn_dataset *d;
    sn_chat_template *t = template_of("{{ bos_token }}{% for m in messages %}{{ '[' if m.role == 'user' else ' ' }}{{ m.content }}{{ ']' "
                                      "if m.role == 'user' else eos_token }}{% endfor %}");
    assert_ok(open_text(
        "bos.jsonl",
        "{\"messages\": [{\"role\":\"user\",\"content\":\"q<s>\"},{\"role\":\"assistant\",\"content\":\"a</s>\"}]}\n{\"text\": "
        "\"<s>ab\"}\n{\"text\": \"cd\"}\n",
        (sn_dataset_options){.cutoff_len = 40, .encoder = &bytes_bos, .chat_template = t, .bos_token = "<s>", .eos_token = "</s>"}, &d));
    assert_sample(d, 0, "B[q<s>] a</s>X", "______ a</s>X_");
    assert_sample(d, 1, "BabX", "abX_");
    assert_sample(d, 2, "BcdX", "cdX_");
    sn_dataset_close(d);
    sn_chat_template_free(t);
}

static void rows_without_labels_are_dropped_and_counted(void **state) { /* FIELD 4 */
    (void)state;
    sn_dataset *d;
    char text[600];
    int n = snprintf(text, sizeof text, "{\"input_ids\": [");
    for (int i = 0; i < 36; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", i);
    n += snprintf(text + n, sizeof text - (size_t)n, "], \"labels\": [");
    for (int i = 0; i < 36; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", i < 32 ? -100 : i);
    snprintf(text + n, sizeof text - (size_t)n, "]}\n");
    assert_int_equal(open_text("cut.jsonl", text, (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
    assert_non_null(strstr(sn_error_text(), "1 have no label within cutoff_len 16"));
    strcat(text, "{\"input_ids\": [1, 2, 3]}\n");
    assert_ok(open_text("cut.jsonl", text, (sn_dataset_options){.cutoff_len = 16}, &d));
    assert_int_equal(sn_dataset_get_info(d)->rows, 1);
    assert_int_equal(sn_dataset_get_info(d)->no_loss, 1);
    assert_int_equal(sn_dataset_get_info(d)->seen, 2);
    sn_dataset_close(d);
    assert_ok(open_text("cut.jsonl", text, (sn_dataset_options){.cutoff_len = 33}, &d)); /* one label survives */
    assert_int_equal(sn_dataset_get_info(d)->labels, 1 + 2);
    assert_int_equal(sn_dataset_get_info(d)->truncated, 1);
    sn_dataset_close(d);
}

static void empty_documents_are_skipped(void **state) { /* FIELD 9 */
    (void)state;
    sn_dataset *d;
    assert_ok(open_text("empty.jsonl",
                        "{\"text\": \"\"}\n{\"text\": \" \\n\\t\\u00a0\"}\n{\"text\": \"x\"}\n{\"text\": \"xy\"}\n{\"input_ids\": "
                        "[3]}\n{\"input_ids\": []}\n",
                        (sn_dataset_options){.cutoff_len = 16, .encoder = &bytes_bos}, &d));
    assert_int_equal(sn_dataset_get_info(d)->rows, 1);
    assert_int_equal(sn_dataset_get_info(d)->empty, 5);
    sn_dataset_close(d);
    assert_int_equal(open_text("empty.jsonl", "{\"text\": \"\"}\n", (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
    assert_int_equal(open_text("empty.jsonl", "", (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
    assert_int_equal(open_text("empty.txt", "", (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
}

static void malformed_rows_name_their_line(void **state) {
    (void)state;
    static const struct {
        const char *row, *words;
    } cases[] = {
        {"{\"text\": 3}", "not a string"},
        {"{\"text\": \"a", "not JSON"},
        {"[1]", "m.jsonl:2"},
        {"{\"other\": 1}", "none of text, messages"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}", "2 input_ids but 1 labels"},
        {"{\"input_ids\": [1, -2]}", "input_ids[1] is not a token id"},
        {"{\"input_ids\": [1, 2.5]}", "input_ids[1]"},
        {"{\"input_ids\": [1, 99999999999]}", "input_ids[1]"},
        {"{\"messages\": {}}", "not an array"},
        {"{\"conversations\": [{\"from\": \"alien\", \"value\": \"x\"}]}", "conversations[0].from is alien"},
        {"{\"conversations\": [{\"from\": \"gpt\"}]}", "conversations[0].value"},
        {"{\"instruction\": \"x\"}", "without \"output\""},
        {"{\"instruction\": 1, \"output\": \"y\"}", "\"instruction\" is not a string"},
    };
    sn_dataset *d;
    sn_str text = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_str_clear(&text);
        sn_str_printf(&text, "{\"text\": \"fine\"}\n%s\n", cases[i].row);
        assert_int_equal(open_text("m.jsonl", text.data, (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
        if (!strstr(sn_error_text(), cases[i].words) || !strstr(sn_error_text(), "m.jsonl:2"))
            fail_msg("%s: %s", cases[i].row, sn_error_text());
    }
    sn_str_free(&text);
    static const char *const arrays[] = {
        "[{\"text\": \"ab\"}", "[{\"text\": \"ab\"} {}]", "[1]", "[{\"text\": \"ab\"}] x", "[{\"text\": \"ab\"},", "[{\"a\": \"", "["};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        assert_int_equal(open_text("m.json", arrays[i], (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
    sn_chat_template *t = template_of("{{ raise_exception('never') }}");
    assert_int_equal(open_text("m.jsonl", "{\"messages\": [{}]}\n", (sn_dataset_options){.cutoff_len = 16, .chat_template = t}, &d),
                     SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "m.jsonl:1: chat template line 1: the template refuses: never"));
    sn_chat_template_free(t);
    assert_int_equal(open_text("m.jsonl", "{}", (sn_dataset_options){.cutoff_len = 1}, &d), SN_ERR_USAGE);
}

static void plain_text_is_one_stream(void **state) {
    (void)state;
    sn_dataset *d;
    enum { SIZE = 30000 };
    char *text = sn_alloc(SIZE + 1);
    for (int i = 0; i < SIZE; i++) text[i] = (char)(i % 61 == 60 ? '\n' : 'a' + i * 7 % 26);
    text[SIZE] = 0;
    assert_ok(open_text("plain.txt", text, (sn_dataset_options){.cutoff_len = 64, .encoder = &bytes_bos}, &d));
    uint64_t rows = sn_dataset_get_info(d)->rows, at = 0; /* BOS, SIZE bytes, EOS: SIZE + 1 labels */
    assert_int_equal(sn_dataset_get_info(d)->labels, SIZE + 1);
    assert_int_equal(rows, (SIZE + 1 + 63) / 64);
    sn_sample s = {0};
    for (uint64_t row = 0; row < rows; row++) {
        assert_ok(sn_dataset_read(d, row, &s));
        assert_int_equal(s.ids.size, s.labels.size);
        for (size_t i = 0; i < s.ids.size; i++, at++) {
            assert_int_equal(s.ids.data[i], at ? text[at - 1] : BOS);
            assert_int_equal(s.labels.data[i], at < SIZE ? text[at] : EOS);
        }
    }
    assert_int_equal(at, SIZE + 1);
    assert_ok(sn_dataset_read(d, rows / 2, &s)); /* out of order */
    assert_int_equal(s.ids.data[0], text[rows / 2 * 64 - 1]);
    sn_sample_free(&s);
    sn_dataset_close(d);
    sn_free(text);
}

static void shuffle_is_a_bijection(void **state) {
    (void)state;
    static uint8_t seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n < 40 ? n + 1 : n * 3) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = sn_shuffle(n, 7, 1, i);
            assert_true(p < n && !seen[p]);
            seen[p] = 1;
        }
    }
    int same_epoch = 0, fixed = 0, sum = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same_epoch += sn_shuffle(1000, 7, 1, i) == sn_shuffle(1000, 7, 2, i);
        fixed += sn_shuffle(1000, 7, 1, i) == i;
        sum += i < 500 && sn_shuffle(1000, 7, 1, i) < 500;
    }
    assert_true(same_epoch < 10 && fixed < 10 && sum > 200 && sum < 300);
    assert_true(sn_shuffle(UINT64_C(1) << 40, 1, 0, 12345) < UINT64_C(1) << 40);
}

typedef struct arrays {
    sn_batch b;
    int32_t memory[4][4096];
} arrays;
static sn_batch *batch(arrays *a) {
    a->b = (sn_batch){.ids = a->memory[0], .positions = a->memory[1], .seq_start = a->memory[2], .labels = a->memory[3]};
    return &a->b;
}

static void padding_is_by_position(void **state) { /* FIELD 5: the pad id and a real EOS look alike */
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(
        open_text("pad.jsonl", "{\"input_ids\": [7, 0, 8, 0]}\n{\"input_ids\": [9, 0]}\n", (sn_dataset_options){.cutoff_len = 6}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2}, &l));
    assert_ok(sn_loader_step(l, &at, &step));
    assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    assert_int_equal(step.label_tokens, 4);
    assert_int_equal(a.b.label_tokens, 4);
    assert_int_equal(a.b.tokens, 6);
    assert_memory_equal(a.b.ids, ((int32_t[]){7, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0}), 48);
    assert_memory_equal(a.b.labels, ((int32_t[]){0, 8, 0, -100, -100, -100, 0, -100, -100, -100, -100, -100}), 48);
    assert_memory_equal(a.b.positions, ((int32_t[]){0, 1, 2, 3, 0, 0, 0, 1, 0, 0, 0, 0}), 48);
    assert_memory_equal(a.b.seq_start, ((int32_t[]){0, 0, 0, 0, 4, 5, 6, 6, 8, 9, 10, 11}), 48);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static void packed_samples_stay_apart(void **state) { /* FIELD 7 */
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(open_text(
        "pack.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5, 6, 7]}\n{\"input_ids\": [8, 9]}\n{\"input_ids\": [10, 11, 12]}\n",
        (sn_dataset_options){.cutoff_len = 6}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2, .packing = true}, &l));
    assert_ok(sn_loader_step(l, &at, &step));
    assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    assert_memory_equal(a.b.ids, ((int32_t[]){1, 2, 3, 8, 9, 0, 4, 5, 6, 7, 0, 0}), 48);
    assert_memory_equal(a.b.labels, ((int32_t[]){2, 3, -100, 9, -100, -100, 5, 6, 7, -100, -100, -100}), 48);
    assert_memory_equal(a.b.positions, ((int32_t[]){0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 0}), 48);
    assert_memory_equal(a.b.seq_start, ((int32_t[]){0, 0, 0, 3, 3, 5, 6, 6, 6, 6, 10, 11}), 48);
    assert_int_equal(step.samples, 3);
    assert_int_equal(step.label_tokens, 6);
    assert_false(step.ends_epoch);
    assert_int_equal(at.position, 3); /* the sample without room begins the next step */
    assert_ok(sn_loader_step(l, &at, &step));
    assert_true(step.ends_epoch && step.samples == 1);
    uint64_t steps;
    assert_ok(sn_loader_steps(l, 0, &steps));
    assert_int_equal(steps, 2);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static void a_small_file_makes_one_small_step(void **state) { /* FIELD 8 */
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    uint64_t steps;
    assert_ok(open_text("three.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n{\"input_ids\": [6, 7]}\n",
                        (sn_dataset_options){.cutoff_len = 4}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2, .accumulation = 2, .ranks = 2}, &l));
    assert_ok(sn_loader_steps(l, 0, &steps));
    assert_int_equal(steps, 1);
    assert_ok(sn_loader_step(l, &at, &step));
    assert_int_equal(step.label_tokens, 4);
    assert_int_equal(step.samples, 3);
    assert_true(step.ends_epoch);
    assert_int_equal(at.epoch, 1);
    static const int samples[2][2] = {{2, 1}, {0, 0}}; /* row 2 of the step belongs to rank 1's part of the first micro-batch */
    for (int m = 0; m < 2; m++) {
        for (int r = 0; r < 2; r++) {
            assert_ok(sn_loader_fill(l, m, r, batch(&a)));
            assert_int_equal(a.b.samples, samples[m][r]);
            if (!samples[m][r]) assert_int_equal(a.b.label_tokens, 0);
        }
    }
    assert_int_equal(sn_loader_fill(l, 2, 0, batch(&a)), SN_ERR_USAGE);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static uint32_t hash_step(sn_loader *l, int accumulation, int ranks, int64_t tokens, int64_t *labels) {
    static arrays a;
    uint32_t crc = 0;
    *labels = 0;
    for (int m = 0; m < accumulation; m++) {
        for (int r = 0; r < ranks; r++) {
            assert_ok(sn_loader_fill(l, m, r, batch(&a)));
            *labels += a.b.label_tokens;
            for (int k = 0; k < 4; k++) {
                for (int64_t i = 0; i < tokens; i++) crc = crc * 16777619 ^ (uint32_t)a.memory[k][i];
            }
        }
    }
    return crc;
}

static const char *many_rows(const char *name, int rows) {
    sn_str text = {0};
    for (int i = 0; i < rows; i++) {
        sn_str_printf(&text, "{\"input_ids\": [%d", i);
        for (int k = 0; k < 1 + i * 7 % 29; k++) sn_str_printf(&text, ", %d", i + k);
        sn_str_add(&text, "]}\n");
    }
    const char *path = write_file(name, text.data, text.size);
    sn_str_free(&text);
    return path;
}

static void resume_is_exact(void **state) {
    (void)state;
    enum { STEPS = 40, ACCUMULATION = 2, RANKS = 2, ROWS = 2, LENGTH = 32 };
    sn_dataset *d;
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = many_rows("resume.jsonl", 101), .cutoff_len = LENGTH, .encoder = &bytes}, &d));
    for (int packing = 0; packing < 2; packing++) {
        sn_loader_options o = {
            .dataset = d, .micro_rows = ROWS, .accumulation = ACCUMULATION, .ranks = RANKS, .packing = packing, .shuffle = true, .seed = 5};
        sn_loader *l;
        uint32_t straight[STEPS];
        sn_data_cursor at = {0}, before[STEPS], sought;
        sn_step step;
        int64_t labels, samples = 0;
        assert_ok(sn_loader_open(&o, &l));
        for (int k = 0; k < STEPS; k++) {
            before[k] = at;
            assert_ok(sn_loader_step(l, &at, &step));
            if (step.epoch == 0) samples += step.samples;
            straight[k] = hash_step(l, ACCUMULATION, RANKS, ROWS * LENGTH, &labels);
            assert_int_equal(labels, step.label_tokens);
        }
        assert_int_equal(samples, 101); /* each row once an epoch */
        assert_true(at.epoch >= 2);
        sn_loader_close(l);
        for (int k = 0; k < STEPS; k++) {
            assert_ok(sn_loader_open(&o, &l));
            assert_ok(sn_loader_seek(l, (uint64_t)k, &sought));
            assert_memory_equal(&sought, &before[k], sizeof sought);
            at = before[k];
            for (int j = k; j < STEPS && j < k + 3; j++) {
                assert_ok(sn_loader_step(l, &at, &step));
                assert_int_equal(hash_step(l, ACCUMULATION, RANKS, ROWS * LENGTH, &labels), straight[j]);
            }
            sn_loader_close(l);
        }
    }
    sn_dataset_close(d);
}

static void evaluation_split(void **state) {
    (void)state;
    sn_dataset *d;
    int seen[101] = {0};
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = many_rows("split.jsonl", 101), .cutoff_len = 32, .encoder = &bytes}, &d));
    for (int part = SN_DATA_TRAIN; part <= SN_DATA_EVAL; part++) {
        static arrays a;
        sn_loader *l;
        sn_data_cursor at = {0};
        sn_step step;
        assert_ok(sn_loader_open(
            &(sn_loader_options){
                .dataset = d, .micro_rows = 1, .shuffle = part == SN_DATA_TRAIN, .part = (sn_data_part)part, .eval_fraction = 0.2},
            &l));
        assert_int_equal(sn_loader_rows(l), part == SN_DATA_TRAIN ? 80 : 21);
        while (at.epoch == 0) {
            assert_ok(sn_loader_step(l, &at, &step));
            assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
            seen[a.b.ids[0]] += part;
        }
        sn_loader_close(l);
    }
    int held = 0, early = 0;
    for (int i = 0; i < 101; i++) {
        assert_true(seen[i] == SN_DATA_TRAIN || seen[i] == SN_DATA_EVAL); /* each row in one part, once */
        held += seen[i] == SN_DATA_EVAL;
        early += i < 50 && seen[i] == SN_DATA_EVAL;
    }
    assert_int_equal(held, 21);
    assert_true(early > 3 && early < 18);
    sn_loader *l;
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 1, .part = SN_DATA_EVAL, .eval_fraction = 1.5}, &l),
                     SN_ERR_USAGE);
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 1, .part = SN_DATA_EVAL, .eval_fraction = 0.999}, &l),
                     SN_ERR_DATA);
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = INT64_MAX / 2}, &l), SN_ERR_USAGE);
    sn_dataset_close(d);
}

static void the_index_is_kept_and_checked(void **state) {
    (void)state;
    sn_dataset *d;
    char index[800];
    sn_dataset_options o = {.path = many_rows("index.jsonl", 300), .cutoff_len = 32, .encoder = &bytes};
    snprintf(index, sizeof index, "%s.snug-idx", o.path);
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    uint64_t tokens = sn_dataset_get_info(d)->tokens;
    sn_dataset_close(d);
    assert_ok(sn_dataset_open(&o, &d));
    assert_false(sn_dataset_get_info(d)->built);
    assert_int_equal(sn_dataset_get_info(d)->tokens, tokens);
    sn_dataset_close(d);
    struct stat st;
    assert_int_equal(stat(index, &st), 0);
    for (off_t at = 0; at < st.st_size; at += at < 300 ? 9 : 331) { /* any damaged byte is found */
        int fd = open(index, O_RDWR);
        char c;
        assert_int_equal(pread(fd, &c, 1, at), 1);
        c ^= 0x10;
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
        close(fd);
        assert_ok(sn_dataset_open(&o, &d));
        if (!sn_dataset_get_info(d)->built) fail_msg("damage at byte %ld is not found", (long)at);
        assert_int_equal(sn_dataset_get_info(d)->tokens, tokens);
        sn_dataset_close(d);
    }
    assert_int_equal(truncate(index, st.st_size - 5), 0);
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    sn_dataset_close(d);
    assert_int_equal(truncate(index, 0), 0);
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    sn_dataset_close(d);
    o.cutoff_len = 31; /* other settings, tokenizer, data: all build anew */
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    sn_dataset_close(d);
    o.encoder = &bytes_bos;
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    sn_dataset_close(d);
    many_rows("index.jsonl", 301);
    assert_ok(sn_dataset_open(&o, &d));
    assert_true(sn_dataset_get_info(d)->built);
    assert_int_equal(sn_dataset_get_info(d)->rows, 301);
    sn_dataset_close(d);
    o.index_path = "/nonexistent/place";
    assert_int_equal(sn_dataset_open(&o, &d), SN_ERR_FILE);
    assert_non_null(strstr(sn_error_text(), "/nonexistent/place"));
}

static long peak_kib(void) { /* VmHWM of this process */
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void memory_does_not_grow_with_the_file(void **state) {
    (void)state;
    enum { ROWS = 100000 };
    char path[700];
    snprintf(path, sizeof path, "%s/large.jsonl", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < ROWS; i++) fprintf(f, "{\"text\": \"row %d of many, with some words to fill it: %0*d\"}\n", i, i % 300, i);
    fclose(f);
    long before = peak_kib();
    sn_dataset *d;
    sn_loader *l;
    static arrays a;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = path, .cutoff_len = 512, .encoder = &bytes}, &d));
    assert_int_equal(sn_dataset_get_info(d)->rows, ROWS);
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 4, .shuffle = true, .packing = true, .seed = 1}, &l));
    for (int i = 0; i < 2000; i++) {
        assert_ok(sn_loader_step(l, &at, &step));
        assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    }
    long grown = peak_kib() - before; /* the file has 23 MB, the index 3.2 MB */
    print_message("peak grew by %ld KiB\n", grown);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown < 2600);
#endif
    sn_loader_close(l);
    sn_dataset_close(d);
}

static void allocations_may_fail(void **state) {
    (void)state;
    sn_chat_template *t = template_of(chatml);
    sn_dataset_options o = {
        .path = write_file("fail.jsonl", "{\"text\": \"abc\"}\n", 16), .cutoff_len = 16, .encoder = &bytes, .chat_template = t};
    char index[800];
    snprintf(index, sizeof index, "%s.snug-idx", o.path);
    sn_dataset *d;
    sn_loader *l = NULL;
    sn_alloc_fail_at(-1);
    for (long i = 0, count = 1; i < count; i++) {
        static arrays a;
        sn_data_cursor at = {0};
        sn_step step;
        unlink(index);
        sn_alloc_fail_at(i ? i - 1 : -1);
        sn_status s = sn_dataset_open(&o, &d);
        if (s == SN_OK) {
            s = sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2}, &l);
            if (s == SN_OK) s = sn_loader_step(l, &at, &step);
            if (s == SN_OK) s = sn_loader_fill(l, 0, 0, batch(&a));
            sn_loader_close(l);
            sn_dataset_close(d);
        }
        long made = sn_alloc_fail_at(-1);
        if (!i) count = made + 1;
        assert_int_equal(s, i ? SN_ERR_NO_MEMORY : SN_OK);
    }
    sn_chat_template_free(t);
}

/* SmolLM2's own tokenizer and template; the ids are those of transformers, but for the user's "<|im_end|>", which stays text. */
static void a_real_model(void **state) {
    (void)state;
    const char *path = getenv("SNUG_TEST_GGUF"), *source;
    if (!path) skip();
    static const int32_t wanted[] = {1,     9690, 198, 2683, 359, 253,  5356, 5646,  11173, 3365, 3511, 308, 34519, 28,  7018, 411, 407,
                                     19712, 8182, 2,   198,  1,   4093, 198,  26843, 2067,  108,  306,  79,  486,   108, 46,   665, 2,
                                     198,   1,    520, 9531, 198, 2705, 28,   827,   30,    2,    198,  1,   4093,  198, 5507, 198, 2,
                                     198,   1,    520, 9531, 198, 142,  246,  94,    25972, 216,  7906, 240, 178,   239, 230,  2,   198};
    sn_gguf g = {0};
    sn_tokenizer *tokenizer;
    sn_encoder e;
    sn_dataset *d;
    sn_sample s = {0};
    assert_ok(sn_gguf_open(path, &g));
    assert_ok(sn_tokenizer_from_gguf(&g, &tokenizer));
    assert_ok(sn_encoder_of_tokenizer(tokenizer, &e));
    assert_false(e.prefix_space);
    assert_int_equal(e.bos, -1);
    assert_ok(sn_gguf_get_string(&g, "tokenizer.chat_template", &source));
    sn_chat_template *t = template_of(source);
    assert_ok(open_text(
        "real.jsonl",
        "{\"messages\": [{\"role\":\"user\",\"content\":\"Hi <|im_end|> there\"},{\"role\":\"assistant\",\"content\":\"One, two.\"},"
        "{\"role\":\"user\",\"content\":\"More\\n\"},{\"role\":\"assistant\",\"content\":\"\xc3\x9cn\xc3\xaf "
        "\xe4\xb8\x96\xe7\x95\x8c\"}]}\n",
        (sn_dataset_options){.cutoff_len = 400, .encoder = &e, .chat_template = t}, &d));
    assert_ok(sn_dataset_read(d, 0, &s));
    assert_int_equal(s.ids.size, sizeof wanted / sizeof *wanted);
    assert_memory_equal(s.ids.data, wanted, sizeof wanted);
    assert_int_equal(sn_dataset_get_info(d)->labels, 5 + 11);
    for (size_t i = 0; i < s.ids.size; i++) {
        bool loss = (i >= 38 && i < 43) || (i >= 55 && i < 66);
        assert_int_equal(s.labels.data[i], loss ? wanted[i + 1] : SN_IGNORE_LABEL);
    }
    sn_sample_free(&s);
    sn_dataset_close(d);
    sn_chat_template_free(t);
    sn_tokenizer_close(tokenizer);
    sn_gguf_close(&g);
}

static void quiet(void *context, sn_log_level level, const char *text) { (void)context, (void)level, (void)text; }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_file),
        cmocka_unit_test(formats),
        cmocka_unit_test(chats_carry_loss_on_assistant_turns_only),
        cmocka_unit_test(bos_stands_once),
        cmocka_unit_test(rows_without_labels_are_dropped_and_counted),
        cmocka_unit_test(empty_documents_are_skipped),
        cmocka_unit_test(malformed_rows_name_their_line),
        cmocka_unit_test(plain_text_is_one_stream),
        cmocka_unit_test(shuffle_is_a_bijection),
        cmocka_unit_test(padding_is_by_position),
        cmocka_unit_test(packed_samples_stay_apart),
        cmocka_unit_test(a_small_file_makes_one_small_step),
        cmocka_unit_test(resume_is_exact),
        cmocka_unit_test(evaluation_split),
        cmocka_unit_test(the_index_is_kept_and_checked),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(a_real_model),
    };
    sn_log_to(quiet, NULL);
    snprintf(folder, sizeof folder, "%s", test_dir("dataset"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sn_remove_tree(folder);
    return failed;
}
