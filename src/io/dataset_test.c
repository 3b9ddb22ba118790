/* Training data: formats, exact label counts, the index. */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "io/dataset_fake.h"
#include "io/dataset_impl.h"
#include "io/gguf.h"

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

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

static void chats_carry_loss_on_assistant_turns_only(void **state) {
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

static void bos_stands_once(void **state) {
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

static void rows_without_labels_are_dropped_and_counted(void **state) {
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

static void empty_documents_are_skipped(void **state) {
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
    static const char *const broken[] = {
        "[{\"text\": \"ab\"}", "[{\"text\": \"ab\"} {}]", "[1]", "[{\"text\": \"ab\"}] x", "[{\"text\": \"ab\"},", "[{\"a\": \"", "["};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_int_equal(open_text("m.json", broken[i], (sn_dataset_options){.cutoff_len = 16}, &d), SN_ERR_DATA);
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

/* Batches of more than 1 MiB, of more rows than a batch holds, and a row that is longer than a batch. */
static void add_many_rows(sn_str *text) {
    for (int i = 0; i < 3000; i++) {
        if (i % 3 == 0) sn_str_printf(text, "{\"input_ids\": [%d, %d, 7], \"labels\": [-100, 5, %d]}\n", i, i + 1, i % 2 ? -100 : 9);
        else sn_str_printf(text, "{\"text\": \"row %d%s\"}\n%s", i, i % 7 ? "" : " is longer", i % 11 ? "" : "\n{\"text\": \"\"}\n");
        if (i != 1500 && i != 2999) continue;
        sn_str_add(text, "{\"text\": \"");
        for (int k = 0; k < (i == 1500 ? 1100000 : 900000); k++) sn_str_char(text, (char)('a' + k % 26));
        sn_str_add(text, "\"}\n");
    }
    assert_false(text->failed);
}

static void threads_build_the_same_index(void **state) {
    (void)state;
    sn_dataset *d;
    sn_str text = {0};
    sn_dataset_info one = {0};
    char bad[64];
    add_many_rows(&text);
    for (int threads = 0; threads < 4; threads++) {
        const char *path = write_file("threads.jsonl", text.data, text.size);
        char index[800];
        snprintf(index, sizeof index, "%s.%d.idx", path, threads);
        unlink(index);
        assert_ok(sn_dataset_open(
            &(sn_dataset_options){.path = path, .index_path = index, .cutoff_len = 12, .encoder = &bytes, .threads = threads}, &d));
        const sn_dataset_info *info = sn_dataset_get_info(d);
        assert_true(info->built);
        if (!threads) one = *info;
        assert_memory_equal(info, &one, sizeof one);
        assert_int_equal(info->seen, 3002 + 182);
        assert_int_equal(info->empty, 182);
        sn_dataset_close(d);
    }
    sn_str_add(&text, "{\"text\": 1}\n");
    for (int i = 0; i < 40; i++) sn_str_add(&text, "{\"text\": \"fine\"}\n{\"text\": \n");
    assert_int_equal(open_text("t.jsonl", text.data, (sn_dataset_options){.cutoff_len = 12, .threads = 3}, &d), SN_ERR_DATA);
    snprintf(bad, sizeof bad, "t.jsonl:%d: \"text\" is not a string", 3002 + 2 * 182 + 1);
    if (!strstr(sn_error_text(), bad)) fail_msg("%s, wanted %s", sn_error_text(), bad);
    /* A file that breaks off behind a bad row: the row comes first, with any number of threads. */
    assert_int_equal(
        open_text("t.json", "[{\"text\": \"ab\"}, {\"text\": 2}, 3]", (sn_dataset_options){.cutoff_len = 12, .threads = 3}, &d),
        SN_ERR_DATA);
    assert_non_null(strstr(sn_error_text(), "t.json:2: \"text\" is not a string"));
    assert_int_equal(open_text("t.json", "[{\"text\": \"ab\"}, 3]", (sn_dataset_options){.cutoff_len = 12, .threads = 3}, &d), SN_ERR_DATA);
    assert_non_null(strstr(sn_error_text(), "element 2: expected an object"));
    sn_str_free(&text);
}

/* The one-pass reader takes flat rows and leaves all else to the JSON reader: both say the same. */
static void ready_made_rows(void **state) {
    (void)state;
    static const struct {
        const char *row;
        bool done, labels;
        size_t n;
    } cases[] = {
        {"{\"input_ids\": [1, 20, 300], \"labels\": [-100, 0, 999999999]}", true, true, 3},
        {" { \"attention_mask\":[1 ,1],\r\n\"input_ids\":[4,\t5 ] } ", true, false, 2},
        {"{\"input_ids\":[]}", true, false, 0},
        {"{\"input_ids\":[1,2],\"labels\":[]}", false, false, 0},
        {"{\"input_ids\":[1,2],\"labels\":[1]}", false, false, 0},
        {"{\"input_ids\":[1,2],\"input_ids\":[1,2]}", false, false, 0},
        {"{\"input_ids\":[1],\"labels\":[1],\"labels\":[1]}", false, false, 0},
        {"{\"input_ids\":[1,2],\"labels\":null}", false, false, 0},
        {"{\"input_ids\":[1,2],\"text\":\"x\"}", false, false, 0},
        {"{\"labels\":[1,2]}", false, false, 0},
        {"{\"input_ids\":[01]}", false, false, 0},
        {"{\"input_ids\":[-0]}", false, false, 0},
        {"{\"input_ids\":[1.5]}", false, false, 0},
        {"{\"input_ids\":[1e2]}", false, false, 0},
        {"{\"input_ids\":[- 1]}", false, false, 0},
        {"{\"input_ids\":[-100]}", false, false, 0},
        {"{\"input_ids\":[1],\"labels\":[-99]}", false, false, 0},
        {"{\"input_ids\":[2147483647]}", false, false, 0}, /* an id, but with ten digits */
        {"{\"input_ids\":[1,]}", false, false, 0},
        {"{\"input_ids\":[1]},", false, false, 0},
        {"{\"input_ids\":[1],}", false, false, 0},
        {"{\"input_ids\":[1]", false, false, 0},
        {"{\"input_ids \":[1]}", false, false, 0},
        {"{\"input_ids", false, false, 0},
        {"{\"input_ids\":[1", false, false, 0},
        {"{\"input_ids\":[-", false, false, 0},
        {"{}", false, false, 0},
        {"", false, false, 0},
    };
    sn_sample s = {0};
    bool done, labels;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].row);
        char *exact = malloc(n ? n : 1); /* no byte behind the text may be read */
        memcpy(exact, cases[i].row, n);
        assert_ok(sn_sample_ready_made(exact, n, &s, &done, &labels));
        if (done != cases[i].done || (done && (labels != cases[i].labels || s.ids.size != cases[i].n))) fail_msg("%s", cases[i].row);
        free(exact);
    }
    assert_ok(sn_sample_ready_made(cases[0].row, strlen(cases[0].row), &s, &done, &labels));
    assert_memory_equal(s.ids.data, ((int32_t[]){1, 20, 300}), 12);
    assert_memory_equal(s.labels.data, ((int32_t[]){-100, 0, 999999999}), 12);
    sn_sample_free(&s);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),
        cmocka_unit_test(chats_carry_loss_on_assistant_turns_only),
        cmocka_unit_test(bos_stands_once),
        cmocka_unit_test(rows_without_labels_are_dropped_and_counted),
        cmocka_unit_test(empty_documents_are_skipped),
        cmocka_unit_test(malformed_rows_name_their_line),
        cmocka_unit_test(plain_text_is_one_stream),
        cmocka_unit_test(the_index_is_kept_and_checked),
        cmocka_unit_test(threads_build_the_same_index),
        cmocka_unit_test(ready_made_rows),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(a_real_model),
    };
    return run_in_folder("dataset", tests, sizeof tests / sizeof *tests);
}
