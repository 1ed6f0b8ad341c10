"""Strategies of tokenizer.json files with all kinds of parts, and of texts hard for them."""

import json

from hypothesis import strategies as st

from xformer_kit.data.tokenizer.decoding_rule import byte_characters

SPACE = "\u2581"
MARKED = ["<s>", "</s>", "<pad>", "[MASK]", "10", "a"]  # special tokens
LETTERS = [*"abcfé<>/s10[]MASK.\n", " ", SPACE, "e\u0301"[1]]
WORDS = ["ca", "caf", "ab", "there", SPACE + "a", SPACE + "ca", "##a", "##b", "a</w>", "b</w>"]
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
TEXT = st.lists(
    st.sampled_from(
        [
            *MARKED,
            *LETTERS,
            *("café", "CAF", "e\u0301", "\ufb01", "ab", "there", "<unk>", "<0xC3>", "<0x41>"),
            *("  ", "\t", "漢", "🙂", "Ġ", "Ã", "\x07", "\u00a0", "##a", "</w>", "x"),
        ]
    )
).map("".join) | st.text(st.characters(exclude_categories=("Cs",)))

NORMALIZERS = [
    {"type": "NFKC"},
    {"type": "NFD"},
    {"type": "Lowercase"},
    {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Prepend", "prepend": SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    {"type": "Replace", "pattern": {"String": "  "}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": "[0-9]"}, "content": ""},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
]


def _level(prefix):
    options = {"add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return {"type": "ByteLevel"} | options


def _metaspace(scheme):
    options = {"replacement": SPACE, "prepend_scheme": scheme, "split": True}
    return {"type": "Metaspace"} | options


def _split(behavior):
    options = {"pattern": {"Regex": r"\s+|\."}, "behavior": behavior, "invert": False}
    return {"type": "Split"} | options


PRE_TOKENIZERS = [
    *({"type": kind} for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")),
    {"type": "CharDelimiterSplit", "delimiter": "b"},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Digits", "individual_digits": True},
    {"type": "UnicodeScripts"},
    *map(_level, (False, True)),
    *map(_metaspace, ("always", "first", "never")),
    *map(_split, ("Isolated", "Removed", "MergedWithNext")),
]
FUSED = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
DECODERS = [
    _level(False),
    _metaspace("always"),
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "Sequence", "decoders": FUSED},
    {"type": "Fuse"},
]


def _one_or_more(steps, kind):
    """None, a step or a sequence of steps."""
    several = st.lists(st.sampled_from(steps), min_size=2, max_size=3)
    return st.none() | st.sampled_from(steps) | several.map(lambda s: {"type": "Sequence", kind: s})


@st.composite
def tokenizer_files(draw):
    """The text of a file, with the names of its tokens."""
    kind = draw(st.sampled_from(["BPE", "Unigram", "WordPiece", "WordLevel"]))
    marked = draw(st.lists(st.sampled_from(MARKED), unique=True))
    fallback = kind in ("BPE", "Unigram") and draw(st.booleans())
    letters = draw(st.sets(st.sampled_from(LETTERS + byte_characters()[-80:])))
    words = draw(st.lists(st.sampled_from(WORDS), unique=True))
    alphabet = byte_characters() if draw(st.booleans()) else []
    listed = marked if draw(st.booleans()) else []  # in the vocabulary of the model
    names = ["<unk>", *listed, *(FALLBACK if fallback else []), *alphabet, *sorted(letters), *words]
    merged = {}
    inner = draw(st.sampled_from(["", "", "##"]))
    if kind == "BPE":
        merged = {
            (name[:at], inner + name[at:]): name
            for name in [*listed, *words]
            for at in [len(name) - 1]
            if at > 0 and name not in ("##a", "##b", "a</w>", "b</w>")
        }
        names += [part for merge in merged for part in merge]
        names += [left[:at] for left, _ in merged for at in range(1, len(left))]
    names = list(dict.fromkeys(names))
    numbers = {name: i for i, name in enumerate(names)}
    unknown = draw(st.sampled_from(["<unk>", None])) if kind == "BPE" else "<unk>"
    if kind == "Unigram":
        scores = draw(st.sampled_from([-1.0, -3.0]))
        model = {
            "unk_id": 0,
            "vocab": [[name, 0.0 if name in marked else scores - len(name)] for name in names],
            "byte_fallback": fallback,
        }
    elif kind == "BPE":
        merges = sorted(map(list, merged), key=lambda merge: numbers[merged[tuple(merge)]])
        model = {
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": inner or None,
            "end_of_word_suffix": draw(st.sampled_from([None, None, "</w>"])),
            "fuse_unk": draw(st.booleans()),
            "byte_fallback": fallback,
            "ignore_merges": draw(st.booleans()),
            "vocab": numbers,
            "merges": merges,
        }
    else:
        model = {"unk_token": unknown, "vocab": numbers}
        if kind == "WordPiece":
            model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    bytes_marked = ["<0xC3>", "<0xA9>"] if fallback and draw(st.booleans()) else []
    if alphabet and draw(st.booleans()):
        bytes_marked += ["Ã"]
    if draw(st.booleans()):
        marked = [*marked, "<unk>"]
    added, plain = [], draw(st.sampled_from([[], ["there"], ["<user>"]]))
    following = len(names)
    for name in [*marked, *bytes_marked, *plain]:
        number = numbers.get(name, following)
        following += number == following
        kinds = "single_word", "lstrip", "rstrip", "normalized"
        options = dict.fromkeys(kinds, False) | {draw(st.sampled_from(kinds)): draw(st.booleans())}
        special = name not in plain
        added.append({"id": number, "content": name, **options, "special": special})
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(added, key=lambda token: token["id"]),
            "normalizer": draw(_one_or_more(NORMALIZERS, "normalizers")),
            "pre_tokenizer": draw(_one_or_more(PRE_TOKENIZERS, "pretokenizers")),
            "post_processor": None,
            "decoder": draw(st.none() | st.sampled_from(DECODERS)),
            "model": {"type": kind, **model},
        }
    )
