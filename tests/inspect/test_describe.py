import pytest
import torch
from torch import nn

from xformer_kit import ConfigError, compose
from xformer_kit.ffn import FFN, FFNS
from xformer_kit.inspect.describe import describe, kernel_choices
from xformer_kit.inspect.layers import format_ranges
from xformer_kit.inspect.provenance import Provenance
from xformer_kit.inspect.tree import ModuleNode, fold_equal, tree
from xformer_kit.inspect.vocabulary import vocabulary
from xformer_kit.laws.trials import trials
from xformer_kit.model.build import build_model
from xformer_kit.plan import KINDS, STACKS, stacks

SMALL = [
    "logger=none",
    "model.dim=32",
    "model.layers=4",
    "attn.heads=4",
    "data.seq_len=16",
    "data.batch_size=2",
]
COMPONENTS = [(kind, name) for kind, registry in KINDS.items() for name in registry]


def tree_of(config, vocab_size=65):
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    return tree(model, stacks(config), None)


@pytest.mark.parametrize(
    ("words", "heads"),
    [
        ("attn.heads=4", "4 heads of 8"),
        ("attn=mqa attn.heads=4", "4 heads of 8, 1 of keys"),
        # DeepSeek-V2, section 2.1.3: a query or key has 128 + 64 channels, one rotated key for all
        (
            "attn=latent attn.heads=4 attn.head_dim=16 attn.rope_head_dim=8 position=rotary",
            "4 heads of 24, values of 16, 8 channels rotated with 1 key head",
        ),
        ("attn=latent attn.heads=4 attn.head_dim=16 position=none", "4 heads of 24, values of 16"),
    ],
)
def test_sizes_of_heads(words, heads):
    root = tree_of(compose([*SMALL[:3], *words.split()]))
    stack = next(child for child in root.children if child.name == "decoder")
    (attn,) = (n for block in stack.children for n in block.children if n.name == "attn")
    assert attn.description.endswith(f", {heads}")


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=lambda x: str(x))
def test_the_tree_accounts_for_every_parameter(kind, name):
    for _, config, faults in trials(kind, name):
        if not faults:
            root = tree_of(config)
            assert root.parameters == sum(p.numel() for p in build_model(config, 65).parameters())
            assert {"encoder", "decoder"} & {child.name for child in root.children} == set(
                config["model"]
            ) & set(STACKS)
            assert root.parameters == sum(child.parameters * child.times for child in root.children)


def test_equal_layers_are_folded_also_if_they_are_not_adjacent():
    pattern = "model.decoder.pattern=[local,local,base]"
    root = tree_of(
        compose(
            [
                *SMALL,
                pattern,
                "model.decoder.variants.local={mask: {name: sliding_window, window: 4}}",
            ]
        )
    )
    decoder = next(child for child in root.children if child.name == "decoder")
    assert [(n.name, n.times) for n in decoder.children] == [
        ("position", 1),
        ("0-1, 3", 3),
        ("2", 1),
        ("norm", 1),
    ]


def test_a_tied_head_has_no_parameters():
    tied, own = (
        tree_of(compose([*SMALL, f"model.tie_embeddings={tie}"])).children[-1]
        for tie in ("true", "false")
    )
    assert (tied.parameters, own.parameters) == (0, 128 * 32)


@pytest.mark.parametrize(
    ("depths", "text"), [([0], "0"), ([0, 1, 2, 4], "0-2, 4"), ([1, 3, 4], "1, 3-4")]
)
def test_ranges(depths, text):
    assert format_ranges(depths) == text


def test_folding_keeps_the_order_of_first_appearance():
    a, b = ModuleNode("", "a", 1, None), ModuleNode("", "b", 1, None)
    assert [(n.name, n.description) for n in fold_equal([([0], b), ([1], a), ([2], b)])] == [
        ("0, 2", "b"),
        ("1", "a"),
    ]


def origins(words, given):
    config = compose([*SMALL, *words])
    found = Provenance(config, {"dropout": 0.0}, given).values(stacks(config))
    return {(v.variant, v.path): (v.value, v.origin) for v in found}


def test_origins_of_values():
    words = [
        "attn.kv_heads=2",
        "model.decoder.ffn.activation=relu",
        "model.decoder.pattern=[base,odd]",
        "model.decoder.variants.odd={attn: {heads: 8}, ffn: mlp}",
    ]
    found = origins(
        words, {"attn.kv_heads": "2", "attn.heads": "4", "model.decoder.ffn.activation": "relu"}
    )
    assert found["base", "attn.kv_heads"] == (2, "command line")
    assert found["base", "attn.bias"] == (False, "default")
    assert found["base", "model.dropout"] == (0.0, "default")
    assert found["base", "model.dim"] == (32, "config")
    assert found["decoder", "ffn.activation"] == ("relu", "model.decoder.ffn (command line)")
    assert found["decoder odd", "attn.heads"] == (8, "model.decoder.variants.odd.attn")
    assert found["decoder odd", "ffn"] == ("mlp", "model.decoder.variants.odd.ffn")


def test_a_chosen_file_is_the_origin_of_the_values_that_it_sets():
    config = compose([*SMALL, "debug=overfit"])
    mask = {"defaults": [{"override /mask": "causal"}]}
    files = (("debug=overfit", {"model": {"dropout": 0.0}}), ("model=decoder", mask))
    found = {v.path: v.origin for v in Provenance(config, files=files).values(stacks(config))}
    assert (found["model.dropout"], found["mask"], found["ffn"]) == (
        "debug=overfit",
        "model=decoder",
        "default",
    )


def test_kernels_and_the_reasons():
    def choices(*words):
        config = compose([*SMALL, *words])
        with torch.device("meta"):
            model = build_model(config, 65)
        return [(c.where, c.kernel, c.why) for c in kernel_choices(config, stacks(config), model)]

    assert choices() == [
        ("decoder.0-3.attn", "sdpa", ("with torch's own causal mask", "the fastest that can"))
    ]
    ((_, kernel, why),) = choices("mask=sliding_window", "mask.window=4")
    assert kernel == "sdpa"
    assert why[0] == "with a dense mask, 1 x 1 x 16 x 16"
    no_gradients = "not flex: flex computes gradients only on CUDA, and this is a CPU"
    how = "step by step, as the equations are written"
    assert choices("kernel=reference")[0][1:] == (
        "reference",
        (how, "not sdpa: it could too, and kernel=auto takes it", no_gradients),
    )


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (["tokenizer=byte"], 256),
        (["tokenizer=bpe", "tokenizer.vocab_size=300"], 300),
        (["tokenizer=char", "model.vocab_size=65"], 65),
    ],
)
def test_the_vocabulary(words, size):
    assert vocabulary(compose([*SMALL, *words])) == size


def test_a_vocabulary_that_depends_on_the_text_must_be_set():
    with pytest.raises(
        ConfigError, match=r"^model\.vocab_size: is not known before tokenizer 'char' has read"
    ):
        vocabulary(compose([*SMALL, "tokenizer=char"]))


def test_figures_agree_with_each_other():
    found = describe(compose(SMALL))
    decoder, head = found.tree.children[1:]
    assert found.unknown == []
    assert decoder.flops + head.flops == found.flops.forward == found.tree.flops
    layers = decoder.children[1]
    assert layers.flops * layers.times == decoder.flops
    assert sum(child.flops for child in layers.children) == layers.flops
    assert found.cache.length == 16
    (loss,) = found.losses
    assert (loss.tokens, loss.chunk, loss.logits) == (2 * 16, None, 8 * 2 * 16 * found.vocab_size)


@pytest.mark.extended
def test_figures_of_two_stacks_agree_with_each_other():
    words = [
        "model=encoder_decoder",
        "task=seq2seq",
        "model.share_embeddings=false",
        "model.token_types=2",
    ]
    found = describe(
        compose(
            [
                *SMALL,
                *words,
                "model.encoder.layers=6",
                "model.embed_norm=true",
                "model.embed_scale=3",
                "tokenizer=byte",
            ]
        )
    )
    assert found.unknown == []
    assert found.vocab_size == 256 + 2  # with a start and an end
    names = ["embed", "source_embed", "token_type", "encoder", "decoder", "head"]
    assert [child.name for child in found.tree.children] == names
    read = ["320 x 32 x 3, the scale", "320 x 32 x 3, the scale", "2 x 32"]
    assert [child.description for child in found.tree.children[:3]] == read
    encoder, decoder, head = found.tree.children[3:]
    assert encoder.flops + decoder.flops + head.flops == found.flops.forward == found.tree.flops
    assert [child.name for child in encoder.children] == ["position", "embed_norm", "0-5", "norm"]
    assert [choice.where for choice in found.kernels] == [
        "encoder.0-5.attn",
        "decoder.0-3.attn",
        "decoder.0-3.cross",
    ]


def test_figures_of_a_component_that_reads_values_are_unknown_with_a_message():
    @FFNS.register("reads")
    class Reads(FFN):
        """x where its sum is positive."""

        def __init__(self, dim: int):
            super().__init__()
            self.down = nn.Linear(dim, dim)

        def forward(self, x, tokens):
            return self.down(x) if x.sum().item() > 0 else x, {}

    try:
        config = compose([*SMALL, "ffn=reads", "tokenizer=byte"])
        found = describe(config)
        assert (found.flops, found.training_memory) == (None, None)
        assert [sentence.split(":")[0] for sentence in found.unknown] == [
            "FLOPs",
            "memory of a training step",
        ]
        assert found.tree.parameters == sum(
            p.numel() for p in build_model(config, 256).parameters()
        )
    finally:
        FFNS.forget(__name__)


def test_adapted_maps_are_described_with_their_adapters():
    found = describe(compose([*SMALL, "lora.rank=2", "attn.bias=false"]), 300)
    rows = {row.name: row.shape for row in found.parameters}
    q = next(name for name in rows if name.endswith("attn.q.weight"))
    out, into = rows[q]
    adapter = q.removesuffix("weight")
    assert rows[f"{adapter}lora_a"] == (2, into) and rows[f"{adapter}lora_b"] == (out, 2)


@pytest.mark.extended
def test_experts_that_are_not_chosen_are_not_active():
    moe = [
        "ffn=moe",
        "ffn.experts=8",
        "ffn.top_k=3",
        "ffn.width=24",
        "ffn.shared=1",
        "ffn.expert.bias=true",
    ]
    found = describe(compose([*SMALL, *moe]), 300)
    each = 3 * 32 * 24 + 24 + 24 + 32  # weights and biases of an expert
    assert found.tree.parameters - found.active_parameters == 4 * (8 - 3) * each
    dense = describe(compose(SMALL), 300)
    assert dense.active_parameters == dense.tree.parameters
