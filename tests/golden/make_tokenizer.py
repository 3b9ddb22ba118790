#!/usr/bin/env python3
"""Makes the golden values of src/io/tokenizer_test.c below tests/golden/tokenizer/.

    python3 tests/golden/make_tokenizer.py [smollm2.gguf]

Needs: tokenizers 0.23.3; gguf 0.19 and llama-cpp-python 0.3.36. With SmolLM2's GGUF its ids are
made too (they are those of the tokenizer that SmolLM2 publishes: its
vocabulary and merges come from the GGUF, its pre-tokenizer is Digits(individual) + ByteLevel).

  fragments.json   texts and code-point ranges from which the test lines are put together, here and in the test alike
  FAMILY.json      a small tokenizer.json, trained on some of the lines
  FAMILY.ids       little-endian u32: FNV-1a over the ids of every line (special tokens parsed and added), then one over
                   the ids of all lines with special tokens as plain text and none added
  spm.gguf         llama2.json's vocabulary with scores instead of merges; spm.ids: its ids by llama.cpp, 4,000 lines
  smollm2.ids      the same for the first 2,000 lines and the real vocabulary
"""
import collections, json, struct, sys
from pathlib import Path
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = 10000
OUT = Path(__file__).parent / "tokenizer"

TEXTS = [
    "hello", "Hello", "the", " the", "The quick brown fox", " jumps over", "tokenization", "unbelievably", "ELEPHANT", "iPhone", "McDonald",
    "don't", "I'm", "they'll", "we've", "He'S", "IT'LL", "you'Re", "'s", "'t", "'", "''", "’s", "o'clock", "'ſ", "it'ſ",
    "3", "33", "333", "3333", "33333", "333333", "3333333", "33333333", "333333333", "3333333333", "1,234.56", "0x1F", "2024-05-17",
    "१२३", "٣٤٥", "½", "Ⅻ", "²", "①②", "１２３", "9a9", "v2.0.1", "1st", "100%", "€20", "$5", "#7",
    " ", "  ", "   ", "    ", "        ", "\t", "\t\t", " \t ", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", "  \n  ", "\n\t\n",
    "\u00a0", "\u00a0\u00a0", "\u3000", "\u200b", "\u180e", "\u2028", "\u0085", "\u2003", "\ufeff", "\u202f", "\u001c", "\u0000", "\u0007", "\u000b", "\u000c",
    ".", "..", "...", "!", "?!", "!!!", ",", ";", ":", "-", "--", "—", "(", ")", "[]", "{}", "<", ">", "=>", "==", "!=", "+=", "&&", "||", "/*", "*/",
    "//", "#", "##", "_", "__", "____", "a_b", "@user", "http://example.com/a?b=c&d=e", "foo@bar.org", "C:\\dir\\x", "~", "`", "```", "\"quoted\"",
    "“curly”", "«guillemets»", "…", "•", "™", "°C", "±", "≤", "∑", "→", "─────", "▁", "▁▁",
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; i++) {\n", "\tif (a && !b) return;\n", "SELECT * FROM t WHERE id=1;", "print(f\"{x!r}\")",
    "<div class=\"a\">", "</div>", "{\"key\": [1, 2, null]}", "#include <stdio.h>\n", "let mut v: Vec<u8> = vec![];", "a->b", "x = y ** 2", "0b1010",
    "café", "cafe\u0301", "naïve", "nai\u0308ve", "Å", "A\u030a", "\u212b", "Straße", "STRASSE", "ﬁ", "ǆ", "œuvre", "ĳ", "\u0301", "a\u0323\u0307", "q\u0307\u0323",
    "Привет", "мир", " как дела", "Ελλάδα", "και", "שלום", "عليكم", "مرحبا", "العربية", "नमस्ते", "हिन्दी", "বাংলা", "தமிழ்", "ไทย", "สวัสดี", "ქართული", "հայերեն",
    "日本語", "東京都", "こんにちは", "カタカナ", "ｶﾀｶﾅ", "中文", "你好，世界", "。", "、", "「」", "한국어", "안녕하세요", "\u1100\u1161\u11a8", "\uac00\u11a8", "漢字かな交じり文", "𠮷野家", "㍿",
    "😀", "🎉🎉", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "🇩🇪🇫🇷", "❤️", "☕", "🏳️‍🌈", "1️⃣", "𝒜𝓑", "𓀀", "🜁", "\U0001f9ff",
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end", "|im_end|>", "<s>", "</s>", "<extra>", " <extra> ", "word", "words", "<0x0A>", "<tag>", " <tag>  ",
    "aaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "================================================", "ababababababababababababababababababab", "zzzz",
    "Donaudampfschifffahrtsgesellschaftskapitän", "supercalifragilisticexpialidocious", "antidisestablishmentarianism", "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch",
]
# Blocks whose characters have had their classes since Unicode 13: newer ones differ between the libraries' versions.
RANGES = [[0x20, 0x7E], [0x20, 0x7E], [0xA0, 0x24F], [0x2B0, 0x2FF], [0x300, 0x36F], [0x391, 0x3A1], [0x3A3, 0x3FF], [0x400, 0x52F], [0x5D0, 0x5EA], [0x620, 0x65F],
          [0x660, 0x669], [0x904, 0x939], [0x93E, 0x94D], [0x995, 0x9A8], [0xE01, 0xE3A], [0x10D0, 0x10F0], [0x1100, 0x11FF], [0x1E00, 0x1EFF], [0x1F00, 0x1F15], [0x2000, 0x2064],
          [0x2070, 0x2071], [0x2074, 0x208E], [0x20A0, 0x20BF], [0x2100, 0x218B], [0x2190, 0x23FF], [0x2460, 0x24FF], [0x2500, 0x26FF], [0x3000, 0x303F], [0x3041, 0x3096],
          [0x30A1, 0x30FA], [0x3400, 0x4DB5], [0x4E00, 0x9FA5], [0xAC00, 0xD7A3], [0xF900, 0xFA2D], [0xFB00, 0xFB06], [0xFF01, 0xFF5E], [0x10330, 0x1034A], [0x1D400, 0x1D454],
          [0x1F300, 0x1F5FF], [0x1F600, 0x1F64F], [0x20000, 0x2A6D6]]


class Numbers:
    """The linear congruential generator of Numerical Recipes; the test has the same."""
    def __init__(self, seed): self.x = seed
    def below(self, n):
        self.x = (self.x * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.x >> 8) % n


def make_line(number):
    r = Numbers(number)
    for _ in range(4): r.below(1)
    out = []
    for _ in range(1 + r.below(12)):
        kind = r.below(8)
        if kind == 0:
            low, high = RANGES[r.below(len(RANGES))]
            out.append("".join(chr(low + r.below(high - low + 1)) for _ in range(1 + r.below(6))))
        elif kind <= 3:
            out.append(" ")
            out.append(TEXTS[r.below(len(TEXTS))])
        else:
            out.append(TEXTS[r.below(len(TEXTS))])
    return "".join(out)


def fnv(ids, h=0x811C9DC5):
    for byte in struct.pack(f"<{len(ids)}i", *ids): h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
byte_level = pre_tokenizers.ByteLevel


def train(name, pre, lines, size=2400, normalizer=None, limit=None, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer: t.normalizer = normalizer
    alphabet = []
    if pre:
        t.pre_tokenizer = pre
        t.decoder = decoders.ByteLevel()
        alphabet = byte_level.alphabet()
    if limit:  # not the trainer's limit_alphabet: it breaks ties at random
        count = collections.Counter("".join(lines))
        common = set(sorted(count, key=lambda c: (-count[c], c))[:limit]) - {"\0"}  # llama.cpp ends a token at a NUL
        lines = ["".join(c for c in l if c in common) for l in lines]
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False))
    return t


def families(lines):
    some = lines[:2500]
    yield "gpt2", train("gpt2", byte_level(add_prefix_space=False), some)

    t = train("llama3", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level(add_prefix_space=False, use_regex=False)]), some)
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    j["model"]["merges"] = [m for i, m in enumerate(j["model"]["merges"]) if i < 400 or i % 3]  # some tokens only ignore_merges reaches
    t = Tokenizer.from_str(json.dumps(j))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing("<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])])
    yield "llama3", t

    yield "qwen2", train("qwen2", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level(add_prefix_space=False, use_regex=False)]), some,
                         normalizer=normalizers.NFC())
    yield "smollm", train("smollm", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]), some)

    # What the four families do not use: added tokens that strip and stand alone, prefix space, the other split behaviours.
    t = train("mixed", pre_tokenizers.Sequence([
        pre_tokenizers.Split("=", "merged_with_previous"), pre_tokenizers.Split(Regex(r"[\s]*\("), "merged_with_next"), pre_tokenizers.Split("#", "removed"),
        pre_tokenizers.Split(Regex("[a-z]+|[^a-z]"), "removed", invert=True), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(".", "contiguous"), byte_level(add_prefix_space=True)]), some, normalizer=normalizers.NFKC())
    t.add_tokens([AddedToken("<extra>", lstrip=True, rstrip=True), AddedToken("word", single_word=True), AddedToken("<tag>", rstrip=True, normalized=False),
                  AddedToken("fi", normalized=True), AddedToken("▁▁", normalized=False), AddedToken("the quick", normalized=False)])
    t.post_processor = processors.TemplateProcessing("<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)])
    yield "mixed", t

    # Characters with byte fallback, as Llama-2 has them. No line with text that looks like a special or byte token: merges would
    # make such tokens of plain text, which snug never does.
    t = train("llama2", None, [" ".join(l.split()) for l in some if not any(x in l for x in ("aaaa", "<0x", "<|", "s>"))][:1200], 1700, limit=250, special=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)],
              normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    j = json.loads(t.to_str())
    j["added_tokens"] = j["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    yield "llama2", t


def write_ids(name, t, lines):
    bos = t.encode("").ids[:1]
    hashes = []
    for l in lines:
        ids = t.encode(l).ids
        if bos and ids[:2] == bos * 2: del ids[0]  # a text that begins with BOS itself: the reference doubles it, snug does not
        hashes.append(fnv(ids))
    t.encode_special_tokens = True
    plain = 0x811C9DC5
    for l in lines: plain = fnv(t.encode(l, add_special_tokens=False).ids, plain)
    t.encode_special_tokens = False
    (OUT / f"{name}.ids").write_bytes(struct.pack(f"<{len(hashes) + 1}I", *hashes, plain))


def smollm2(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(tokens, types) if k == 3])
    return t


def write_spm(lines):
    """llama2.json's vocabulary as a GGUF of the SentencePiece kind, ranked by scores; the reference is llama.cpp."""
    import gguf, llama_cpp
    model = json.loads((OUT / "llama2.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    rank = {a + b: -1.0 - i for i, (a, b) in reversed(list(enumerate(model["merges"])))}
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    w = gguf.GGUFWriter(OUT / "spm.gguf", "llama")
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([rank.get(t, -1e6) for t in tokens])
    w.add_token_types(kinds)
    w.add_unk_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(True)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    t = llama_cpp.Llama(str(OUT / "spm.gguf"), vocab_only=True, verbose=False)
    hashes, plain = [], 0x811C9DC5
    for l in lines:
        ids = t.tokenize(l.encode(), add_bos=True, special=True)
        if ids[:2] == [1, 1]: del ids[0]
        hashes.append(fnv(ids))
        plain = fnv(t.tokenize(l.encode(), add_bos=False, special=False), plain)
    (OUT / "spm.ids").write_bytes(struct.pack(f"<{len(hashes) + 1}I", *hashes, plain))


def main():
    OUT.mkdir(exist_ok=True)
    lines = [make_line(i) for i in range(LINES)]
    (OUT / "fragments.json").write_text(json.dumps({"texts": TEXTS, "ranges": RANGES}, indent=0) + "\n")
    for name, t in families(lines):
        (OUT / f"{name}.json").write_text(json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        write_ids(name, Tokenizer.from_file(str(OUT / f"{name}.json")), lines)
    write_spm(lines[:4000])
    if len(sys.argv) > 1: write_ids("smollm2", smollm2(sys.argv[1]), lines[:2000])


if __name__ == "__main__":
    main()
