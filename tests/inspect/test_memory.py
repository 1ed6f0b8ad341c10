"""The computed memory of a training step equals that of a real step."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from xformer_kit import build, compose
from xformer_kit.inspect import memory
from xformer_kit.inspect.memory import cache_memory, micro_batch, training_memory
from xformer_kit.model import loss
from xformer_kit.norm.norms import RMSNorm
from xformer_kit.objective import objective_of
from xformer_kit.optim import create_optimizer

pytestmark = pytest.mark.extended

SMALL = [
    "logger=none",
    "trainer.precision=32-true",
    "model.dim=64",
    "model.layers=2",
    "attn.heads=4",
    "data.seq_len=64",
    "data.batch_size=8",
]
COMPOSITIONS = [
    [],
    ["attn.kv_heads=2", "attn.qk_norm=true", "model.tie_embeddings=false", "trainer.accumulate=4"],
    ["placement=post", "norm=layer", "ffn=mlp", "position=learned"],
    ["placement=sandwich", "position=alibi", "attn.bias=true"],
    ["mask=sliding_window", "mask.window=16", "kernel=reference"],
    ["model.dropout=0.1", "attn.dropout=0.1", "ffn.dropout=0.1", "position=sinusoidal"],
    ["attn.dropout=0.1", "data.seq_len=600"],  # several blocks
    ["attn.dropout=0.1", "data.seq_len=600", "mask=sliding_window", "mask.window=9", "position=t5"],
    ["model.vocab_size=20000", "data.batch_size=16"],  # cross-entropy in chunks
    ["extra.future_tokens.count=4", "model.vocab_size=5000"],
    ["data.batch_size=1", "data.seq_len=8", "model.dim=256"],  # weights outweigh activations
    [
        "placement=resi_dual",
        "norm=dyt",
        "model.unique_layers=1",
        "model.embed_dim=24",
        "model.logit_softcap=9",
    ],
    ["model=encoder", "task=masked_language_modeling"],
    [
        "model=encoder_decoder",
        "task=seq2seq",
        "model.share_embeddings=false",
        "model.embed_norm=true",
    ],
]


def measured(config, vocab_size):
    """The most that torch's CPU allocator held, from building the model to the second step."""
    rows, micro_batches = micro_batch(config)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = build(config, vocab_size)
        optimizer = create_optimizer(config["optim"], model)
        objective = objective_of(config)
        for _ in range(2):
            for _ in range(micro_batches):
                nats, count, report = objective.loss(
                    model, objective.blank(rows, config["data"]["seq_len"])
                )
                (nats + report["loss"] * count if "loss" in report else nats).backward()
                del nats, report
            optimizer.step()
            optimizer.zero_grad()
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@pytest.mark.parametrize("words", COMPOSITIONS, ids=lambda words: " ".join(words) or "default")
def test_peak_memory_is_that_of_the_step(words):
    config = compose([*SMALL, *words])
    vocab_size = config["model"]["vocab_size"] or 256
    assert training_memory(config, vocab_size).peak == pytest.approx(
        measured(config, vocab_size), rel=0.01
    )


def test_weights_gradients_and_optimizer_by_hand():
    config = compose([*SMALL, "position=rotary"])
    parameters = sum(p.numel() for p in build(config, 65).parameters())
    memory = training_memory(config, 65)
    assert memory.weights == memory.gradients == 4 * parameters
    assert memory.optimizer == pytest.approx(
        8 * parameters, rel=0.01
    )  # mean and mean square; and a count of steps
    assert memory.peak == memory.weights + memory.optimizer + memory.gradients_at_peak + (
        memory.activations_at_peak + memory.temporaries_at_peak
    )


def saved(config, vocab_size):
    """Bytes that autograd saves in a forward pass: distinct storages, without those of parameters
    and buffers; with the batch's, a thousandth.
    """
    rows, _ = micro_batch(config)
    model, objective = build(config, vocab_size), objective_of(config)
    batch = objective.blank(rows, config["data"]["seq_len"])
    not_activations = {
        tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers()]
    }
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage  # held, so that no other storage gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        objective.loss(model, batch)
    return sum(storage.nbytes() for key, storage in found.items() if key not in not_activations)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["model.layers=8"],
        ["model.dim=128"],
        ["data.seq_len=256"],
        ["ffn=mlp"],
        ["position=alibi"],
        ["position=t5", "kernel=reference"],
        ["placement=post", "norm=layer", "model.dropout=0.1", "ffn.dropout=0.1"],
        ["model=encoder_decoder", "task=seq2seq"],
        ["model=encoder_decoder", "task=seq2seq", "model.layers=8"],
        ["model=encoder", "task=masked_language_modeling"],
        ["trainer.accumulate=4"],
        ["model.vocab_size=20000"],
        ["data.batch_size=1", "data.seq_len=16"],
        ["data.batch_size=1", "data.seq_len=16", "model.layers=8"],
    ],
    ids=lambda words: " ".join(words) or "default",
)
def test_activations_are_what_autograd_saves(words):
    config = compose([*SMALL, *words])
    vocab_size = config["model"]["vocab_size"] or 256
    assert training_memory(config, vocab_size).activations == pytest.approx(
        saved(config, vocab_size), rel=0.01
    )


def test_activations_grow_with_layers_if_the_peak_is_in_the_optimizer():
    small = [*SMALL, "data.batch_size=1", "data.seq_len=8", "model.dim=256"]
    few, many = (training_memory(compose([*small, f"model.layers={n}"]), 256) for n in (4, 32))
    assert few.activations_at_peak < few.activations and many.activations_at_peak < many.activations
    assert few.temporaries_at_peak == many.temporaries_at_peak
    assert 7 < many.activations / few.activations < 8


def test_accumulation_divides_activations():
    full, components = (
        training_memory(compose([*SMALL, f"trainer.accumulate={n}"]), 256) for n in (1, 4)
    )
    assert (full.rows, components.rows) == (8, 2)
    assert components.activations < full.activations / 2
    assert components.gradients_at_peak == components.gradients  # those of the micro-batch before


def test_half_precision_halves_weights():
    full, half = (
        training_memory(compose([*SMALL, f"trainer.precision={p}"]), 256)
        for p in ("32-true", "bf16-true")
    )
    assert half.weights * 2 == full.weights
    mixed = training_memory(compose([*SMALL, "trainer.precision=bf16-mixed"]), 256)
    assert mixed.weights == full.weights
    assert mixed.activations < full.activations


def test_nothing_is_allocated():
    config = compose([*SMALL, "model.dim=16384", "model.layers=20", "attn.heads=64"])
    assert training_memory(config, 256).weights > 200 * 2**30


@pytest.mark.parametrize(("words", "per_token"), [([], 2 * 4), (["attn.kv_heads=1"], 2 * 1)])
def test_a_cache_holds_keys_and_values(words, per_token):
    config = compose([*SMALL, *words])
    cache = cache_memory(build(config, 65), length=64)
    assert cache.per_token == per_token * 16 * 4 * 2  # of 16 channels, in fp32, in two layers
    assert cache.whole == 64 * cache.per_token


def test_a_cache_with_a_source_holds_the_keys_and_values_of_both():
    config = compose([*SMALL, "model=encoder_decoder", "task=seq2seq", "model.encoder.layers=1"])
    cache = cache_memory(build(config, 65), length=64)
    assert (
        cache.per_token == 2 * (2 * 4 * 16 * 4) * 2
    )  # keys and values of 4 heads, of both, in the decoder's two layers


@pytest.mark.parametrize(
    "words",
    [
        ["model.vocab_size=20000", "data.batch_size=64"],
        ["model=encoder", "task=masked_language_modeling"],
    ],
)
def test_memory_of_a_long_text_takes_no_longer(monkeypatch, words):
    """The loss is computed for the first chunks only, and a batch of the largest size is never
    allocated.
    """
    config = compose([*SMALL, *words])
    vocab_size = config["model"]["vocab_size"] or 256
    chunks = []
    count = loss._accumulate
    monkeypatch.setattr(loss, "CHUNK", 2**16)
    monkeypatch.setattr(loss, "_accumulate", lambda *args: chunks.append(1) or count(*args))
    long = training_memory(
        config | {"data": config["data"] | {"seq_len": 2**21, "batch_size": 1}}, vocab_size
    )
    assert long.activations > 4 * 64 * 2**21  # the residual stream, once at least
    assert len(chunks) <= 2 * loss.FIRST_CHUNKS


def test_the_first_chunks_of_a_loss_hold_what_all_of_them_hold(monkeypatch):
    config = compose([*SMALL, "model.vocab_size=20000", "model.dim=16"])
    monkeypatch.setattr(loss, "CHUNK", 2**19)
    found = training_memory(config, 20000)
    monkeypatch.setattr(loss, "FIRST_CHUNKS", 10**9)
    assert training_memory(config, 20000) == found


def test_the_chunks_of_a_loss_are_those_of_the_runs_device(monkeypatch):
    config = compose([*SMALL, "model.vocab_size=20000", "model.dim=16"])
    monkeypatch.setattr(loss, "MIN_TOKENS_GPU", 1)
    peaks = {}
    for device in ("cpu", "cuda"):
        monkeypatch.setattr(memory, "run_device", lambda config, at=device: loss.Device(at))
        for chunk in (2**17, 2**20):
            monkeypatch.setattr(loss, "CHUNK_GPU" if device == "cuda" else "CHUNK", chunk)
            peaks[device, chunk] = training_memory(config, 20000).peak
    assert peaks["cuda", 2**17] == peaks["cpu", 2**17] < peaks["cpu", 2**20] == peaks["cuda", 2**20]


def test_all_logits_at_once_are_counted_where_a_gpu_holds_them(monkeypatch):
    """Kept for the gradient: the fp32 logarithms of probabilities. In chunks: the gradients of
    hidden states and weight.
    """
    config, found = compose([*SMALL, "model.vocab_size=20000", "model.dim=16"]), []
    for gib in (0, 80):
        device = loss.Device("cuda", gib * 2**30)
        monkeypatch.setattr(memory, "run_device", lambda config, device=device: device)
        found.append(training_memory(config, 20000))
    chunks, at_once = found
    tokens = 8 * 64
    more = 4 * (tokens * 20000 - (tokens + 20096) * 16)
    assert at_once.activations - chunks.activations == pytest.approx(more, rel=0.01)
    assert at_once.peak > chunks.peak


def test_a_component_may_have_a_tensor_of_its_file(monkeypatch):
    """It is made when the file is imported, thus with values."""
    config, table, forward = compose(SMALL), torch.ones(1), RMSNorm.forward
    found = training_memory(config, 65)
    monkeypatch.setattr(RMSNorm, "forward", lambda self, x: forward(self, x * table))
    assert training_memory(config, 65).weights == found.weights
