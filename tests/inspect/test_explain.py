"""The kernel of each attention, why no faster one, its memory, which is counted by hand, and how
the loss is computed.
"""

import pytest

from tasks.cli import main
from tests.forked_train import without_repeated_keys
from xformer_kit import compose
from xformer_kit.inspect import memory
from xformer_kit.inspect.explain import explain
from xformer_kit.model.loss import Device
from xformer_kit.registry import ConfigError

SMALL = [
    "logger=none",
    "model.dim=24",
    "model.layers=4",
    "attn.heads=3",
    "data.seq_len=160",
    "data.batch_size=2",
]


def explanations(*words: str):
    return explain(compose([*SMALL, *words])).attentions


def test_a_causal_mask_costs_nothing():
    (item,) = explanations()
    assert (item.where, item.layers, item.kernel, item.faster) == (
        "decoder.0-3.attn",
        4,
        "sdpa",
        (),
    )
    assert item.run == ("with torch's own causal mask", 0, 0)


def test_a_window_runs_by_blocks_and_holds_only_their_masks():
    (item,) = explanations("mask=sliding_window", "mask.window=33")
    first, second = (
        128 * 128,
        32 * (32 + 32),
    )  # pairs: causal, 128 and 32 queries; each sees 32 keys before it
    assert item.run == ("by blocks of 128 queries against 128 keys at most", first + second, 0)


def test_the_reference_kernel_is_explained_with_the_scores_that_it_keeps():
    (item,) = explanations("attn.score.name=entmax", "model.decoder.layers=2")
    assert item.faster[0] == ("sdpa", "attn.score is entmax, and sdpa computes only softmax")
    pairs = 160 * 160
    assert item.run == ("step by step, as the equations are written", pairs, 2 * 3 * 2 * pairs * 4)


def test_a_learned_bias_keeps_scores_of_its_blocks():
    (item,) = explanations("mask=sliding_window", "mask.window=33", "position=t5")
    pairs = 128 * 128 + 32 * 64
    assert item.run[1:] == (3 * pairs * 4, 2 * 3 * pairs * 4)
    assert item.run.how.endswith("torch has no fused kernel for a learned bias on a CPU")


def test_dropout_of_weights_keeps_no_scores():
    (item,) = explanations(
        "mask=sliding_window", "mask.window=33", "position=t5", "attn.dropout=0.1"
    )
    assert item.run.kept == 0 and "by blocks that drop weights" in item.run.how
    (item,) = explanations("attn.score.name=entmax", "attn.dropout=0.1")
    assert item.run.kept > 0 and "drop" not in item.run.how


def test_layers_whose_kernels_run_in_the_same_way_are_one_item():
    variants = [
        "model.decoder.pattern=[base,far]",
        "model.decoder.variants.far={mask:strided,position:shaw}",
    ]
    near, far = explanations("mask=sliding_window", *variants)
    assert (near.where, near.kernel, far.where, far.kernel) == (
        "decoder.0, 2.attn",
        "sdpa",
        "decoder.1, 3.attn",
        "reference",
    )


def test_two_stacks_and_documents():
    two = explain(compose(["logger=none", "model=encoder_decoder", "task=seq2seq"]))
    assert [item.where.partition(".")[0] for item in two.attentions] == [
        "encoder",
        "decoder",
        "decoder",
    ]
    packed = explain(compose([*SMALL, "data.documents=true"]))
    assert (
        packed.documents
        and packed.attentions[0].run.how == "by blocks of 128 queries against 160 keys at most"
    )


LARGE = [*SMALL, "model.vocab_size=50000", "data.batch_size=16"]  # 2,560 tokens
ALL_LOGITS = 2 * 4 * 2560 * 50_000  # bytes, with the gradient: 0.95 GiB


@pytest.mark.parametrize(
    ("device", "way", "chunk"),
    [
        (Device("cpu"), "in chunks", 83),
        (Device("cuda", 7 * 2**30), "in chunks", 2048),
        (Device("cuda", 8 * 2**30), "all logits at once", None),
    ],
)
def test_the_loss_is_that_of_the_device(monkeypatch, device, way, chunk):
    monkeypatch.setattr(memory, "run_device", lambda config: device)
    (loss,) = explain(compose(LARGE)).losses
    at_once = 4 * chunk * 50_000 if chunk else ALL_LOGITS
    assert loss == ("head", way, device.type, 2560, chunk, at_once, ALL_LOGITS)


def test_losses_of_other_tasks():
    """Only the labelled tokens of masked language modelling, all further predictions together; a
    classifier computes no logits of the vocabulary.
    """
    config = compose([*SMALL, "model=encoder", "task=masked_language_modeling"])
    assert [loss.tokens for loss in explain(config).losses] == [memory.labelled_tokens(config, 2)]
    future = explain(compose([*SMALL, "extra.future_tokens.count=3"])).losses
    assert [(loss.where, loss.tokens) for loss in future] == [
        ("head", 320),
        ("further predictions", 2 * 320),
    ]
    labels = ["model=encoder", "task=classification", "task.classes=[a,b]", "data=csv"]
    assert explain(compose([*SMALL, *labels, "data.path=texts.csv"], data=False)).losses == []
    assert explain(compose([*SMALL, "tokenizer=char"])).losses is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_page(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert (
        main(
            [
                "explain",
                *without_repeated_keys([*SMALL, "attn.score.name=entmax", "data.seq_len=2048"]),
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "not sdpa attn.score is entmax, and sdpa computes only softmax not flex" in text
    assert "loss in chunks of 2,048 tokens memory 16.0 MiB of logits; all" in text
    assert (
        "keeps for the gradient, 768 MiB in all" in text
    )  # 2 copies, 2 x 3 x 2048 x 2048 x 4 bytes, 4 layers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: is no directory."),
        (
            ["nowhere", "attn.heads=3"],
            "explain: takes overrides or one run's directory; got nowhere attn.heads=3.",
        ),
        (["mask=slidng"], "mask: no mask is called 'slidng'."),
        (
            ["kernel=sdpa", "position=cope"],
            "kernel: 'sdpa' cannot: position 'cope' computes scores of its own",
        ),
    ],
)
def test_a_fault_is_one_sentence(words, message, capsys):
    assert main(["explain", *words]) == 2
    out, error = capsys.readouterr()
    assert not out and error.startswith(message) and error.count("\n") == 1


def test_plain_data(capsys):
    import json

    assert main(["explain", *SMALL, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["attentions"][0]["run"]["how"] == "with torch's own causal mask"
    assert data["losses"][0]["way"] == "in chunks"
    with pytest.raises(ConfigError):
        explanations("mask=slidng")
