"""Each law is seen to bite: a part that breaks it on purpose is caught, by that law's name.

A law that nothing can break proves nothing.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from xformer_kit import ConfigError, compose
from xformer_kit import config as config_module
from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.attention.cache import KeyValueCache
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.kernel import KERNELS, SDPA, Reference
from xformer_kit.laws import LAWS, LawBroken, check_file, check_part, faults, tiny
from xformer_kit.laws import building as building_laws
from xformer_kit.mask import MASKS, Causal, Mask
from xformer_kit.model import Head, Model
from xformer_kit.norm import NORMS
from xformer_kit.position import POSITIONS, Position


@contextmanager
def registered(registry, part):
    """A part that exists for one test, called 'broken'."""
    registry.register("broken")(part)
    try:
        yield
    finally:
        registry.forget(part.__module__)


def bites(law, registry, part, match, **composition):
    with registered(registry, part):
        config = tiny(**composition)
        assert not faults(config)
        with pytest.raises(LawBroken, match=match) as caught:
            LAWS[law](config)
    assert f"the law '{law}' is broken: " in str(caught.value)
    assert "Seen with: " in str(caught.value)
    assert " model.dim=36 " in str(caught.value)


# Broken parts, each with one fault.


class MeanOverTime(MLP):
    """Adds the mean over the whole sequence: reads the future, other documents and padding."""

    def forward(self, x, real=None):
        return super().forward(x + x.mean(1, keepdim=True))


class MeanOverPast(MLP):
    """Adds the running mean: keeps causality, and has no cache."""

    def forward(self, x, real=None):
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return super().forward(x + x.cumsum(1) / count)


class MeanOverBatch(MLP):
    def forward(self, x, real=None):
        return super().forward(x + x.mean(0, keepdim=True))


class FirstRow(MLP):
    """Treats the first row of a batch differently."""

    def forward(self, x, real=None):
        first = torch.zeros_like(x)
        first[0] = 1
        return super().forward(x + first)


class Liar(Mask):
    """Sees one token ahead; says that it does not."""


@dataclass(frozen=True)
class OneAhead(Liar):
    def allows(self, query, key, head):
        return key.slot <= query.slot + 1

    @property
    def sees_future(self):
        return False


@dataclass(frozen=True)
class WrongBand(Causal):
    def band(self):
        return 3, 0


@dataclass(frozen=True)
class HeadsDiffer(Mask):
    def allows(self, query, key, head):
        return key.slot <= query.slot - head % 2

    @property
    def sees_future(self):
        return False


@dataclass(frozen=True)
class CountsQueries(Mask):
    """Depends on how many queries there are: not point-wise."""

    def allows(self, query, key, head):
        return key.slot <= query.slot.float().mean()


class Identified(Mask):
    """Compared by identity: no value."""

    def allows(self, query, key, head):
        return key.slot <= query.slot

    def band(self):
        return float("inf"), 0


class ByOrder(Position):
    """No hook that shows, and yet an order: rotates in `begin`'s tables, which it does not name."""

    def begin(self, query, key):
        return Scaled()


class Scaled(Position):
    def rotate(self, x, tokens):
        return x * (1 + tokens.position[:, None, :, None])


class SlotPositions(Position):
    """Uses the order of arrival in place of the position, so that padding and documents shift it."""

    def bias(self, query, key, head):
        return key.slot * 0.1 + head * 0


class Stale(KeyValueCache):
    """Returns the newest key and value in the place of all that are older."""

    def append(self, *new):
        held = [h.clone() for h in super().append(*new)]
        for h in held:
            h[..., :-1, :] = h[..., -1:, :]
        return held


class Unselected(KeyValueCache):
    def select(self, rows):
        pass


class Unrewound(KeyValueCache):
    """Loses what is left, too."""

    def rewind(self, n):
        super().rewind(n)
        for held in self.held:
            held[..., : self.length, :] = 0


class Caching(MultiHead):
    kind = KeyValueCache

    def cache(self, rows, length, view=None):
        shape = (rows, self.kv_heads, length, self.head_dim)
        return self.kind(shape, shape, dtype=self.q.weight.dtype, device=self.q.weight.device)


class ForgetfulAttention(Caching):
    kind = Stale


class UnselectedAttention(Caching):
    kind = Unselected


class UnrewoundAttention(Caching):
    kind = Unrewound


class Blind(MultiHead):
    """Looks at another tower with its eyes shut."""

    def forward(self, x, source, view, cache=None):
        return super().forward(x, None if source is None else self.seen(source), view, cache)

    def seen(self, source):
        return 0 * source


class BlindToTheFirst(Blind):
    def seen(self, source):
        return source * (torch.arange(source.shape[1]) > 0)[:, None]


class CountsTheSource(Blind):
    """Knows where a token of the source stands without being told by a position."""

    def seen(self, source):
        return source * torch.arange(1, source.shape[1] + 1)[:, None]


class Again(MultiHead):
    """Reads the source in each step of generation."""

    def forward(self, x, source, view, cache=None):
        return super().forward(x, source, view, cache if source is None else None)


class Across(Reference):
    """Breaks something in attentions to another tower alone."""

    def prepare(self, view, heads, biased, dtype):
        return super().prepare(self.changed(view) if view.cross else view, heads, biased, dtype)


class SeesPadding(Across):
    def changed(self, view):
        return view._replace(key=view.key._replace(real=None))


class SeesDocuments(Across):
    def changed(self, view):
        return view._replace(key=view.key._replace(document=None))


class NoScale(Reference):
    def __call__(self, q, k, v, view, scale, dropout=0.0, scores=None):
        return super().__call__(q, k, v, view, 1.01 * scale, dropout, scores)


class NoGradientOfKeys(SDPA):
    """Right outputs and wrong gradients."""

    def __call__(self, q, k, v, view, scale, dropout=0.0, scores=None):
        return super().__call__(q, k.detach(), v, view, scale, dropout, scores)


class Coarse(SDPA):
    """Right in fp32; loses most bits in bf16."""

    def __call__(self, q, k, v, view, scale, dropout=0.0, scores=None):
        out = super().__call__(q, k, v, view, scale, dropout, scores)
        return (out * 4).round() / 4 if out.dtype == torch.bfloat16 else out


class Uniform(Reference):
    """A row with nothing to see looks at all: a finite mask in place of minus infinity."""

    def weights(self, q, k, view, scale, dropout=0.0, scores=None):
        seen, _ = view.prepared
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -1e9).softmax(-1)


class NotANumber(Uniform):
    def weights(self, q, k, view, scale, dropout=0.0, scores=None):
        seen, _ = view.prepared
        if seen is None:
            return Reference.weights(self, q, k, view, scale, dropout, scores)
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -float("inf")).softmax(-1)


class Unused(MLP):
    def __init__(self, dim: int, *, width: int | None = None):
        super().__init__(dim, width=width)
        self.spare = nn.Parameter(torch.ones(dim))


class Useless(Unused):
    """In the graph, with a gradient of zero that it does not name."""

    def forward(self, x, real=None):
        return super().forward(x + 0 * self.spare)


class Named(Useless):
    no_gradient = ("spare",)


class InfiniteGradient(MLP):
    def forward(self, x, real=None):
        x, report = super().forward(x)
        return x + 0 * (self.up.weight - self.up.weight.detach()).sum().abs().sqrt(), report


class Counting(MLP):
    def __init__(self, dim: int):
        super().__init__(dim)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, real=None):
        self.calls += 1
        return super().forward(x)


class Single(MLP):
    """Rounds to half precision on the way."""

    def forward(self, x, real=None):
        return super().forward(x.to(torch.bfloat16).to(x.dtype) if x.dtype == torch.float32 else x)


class DrawnByHand(nn.Module):
    """A scale that torch's own generator draws: one-dimensional, so that no rule of ours replaces it."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return x * self.weight


class Noisy(MLP):
    def forward(self, x, real=None):
        return super().forward(x + 1e-3 * torch.randn_like(x))


class NotMeta(MLP):
    """Has a parameter fewer where weights take no memory."""

    def __init__(self, dim: int):
        super().__init__(dim, bias=torch.get_default_device().type != "meta")


TWO = {"model": "encoder_decoder"}
CROSS = TWO | {"decoder": {"cross": {"name": "broken"}}}
ARGUMENTS = [
    ("causality", FFNS, MeanOverTime, "changes what comes before it", {"ffn": "broken"}),
    ("causality", MASKS, OneAhead, "changes what comes before it", {"mask": "broken"}),
    ("documents", FFNS, MeanOverPast, "the first document changes the second", {"ffn": "broken"}),
    (
        "documents",
        POSITIONS,
        SlotPositions,
        "the second document differs from the document alone",
        {"position": "broken"},
    ),
    ("padding", FFNS, MeanOverTime, "differs from the row alone", {"ffn": "broken"}),
    ("batch", FFNS, MeanOverBatch, "a row alone differs", {"ffn": "broken"}),
    ("batch", FFNS, FirstRow, "permuting the rows", {"ffn": "broken"}),
    ("shift", POSITIONS, Scaled, "a shift by 16 matters", {"position": "broken"}),
    ("symmetry", POSITIONS, ByOrder, "permuting the tokens", {"position": "broken", "mask": "full"}),
    ("nothing", KERNELS, Uniform, "not zero", {"kernel": "broken", "position": "none"}),
    ("nothing", KERNELS, NotANumber, "not finite", {"kernel": "broken", "position": "none"}),
    ("cache", FFNS, MeanOverPast, "with a cache, in chunks of", {"ffn": "broken"}),
    ("cache", ATTENTIONS, ForgetfulAttention, "with a cache, in chunks of", {"attn": "broken"}),
    ("cache with padding", ATTENTIONS, ForgetfulAttention, "with a cache and padding", {"attn": "broken"}),
    ("greedy", ATTENTIONS, ForgetfulAttention, "not the likeliest", {"attn": "broken"}),
    ("select and rewind", ATTENTIONS, UnselectedAttention, "behind `select`", {"attn": "broken"}),
    ("select and rewind", ATTENTIONS, UnrewoundAttention, "behind `rewind`", {"attn": "broken"}),
    ("cache with a prefix", ATTENTIONS, ForgetfulAttention, "and a prefix", {"attn": "broken", "mask": "prefix"}),
    ("source", ATTENTIONS, Blind, "no token of the source has an influence", CROSS),
    ("source", ATTENTIONS, BlindToTheFirst, "token 0 of the source has no", CROSS | {"encoder": {"layout": ["ffn"]}}),
    ("source padding", KERNELS, SeesPadding, "differs from the source alone", TWO | {"kernel": "broken"}),
    ("source padding", KERNELS, NotANumber, "all padding makes logits that are not", TWO | {"kernel": "broken"}),
    ("source padding", FFNS, MeanOverTime, "padded on the right", TWO | {"encoder": {"ffn": "broken"}}),
    ("source once", ATTENTIONS, Again, "reads the source again", CROSS),
    ("source order", ATTENTIONS, CountsTheSource, "permuting the source matters", CROSS | {"position": "none"}),
    ("source order", POSITIONS, ByOrder, "permuting the source matters", TWO | {"position": "broken"}),
    ("causality", FFNS, MeanOverTime, "changes what comes before it", TWO | {"ffn": "broken"}),
    ("documents", KERNELS, SeesDocuments, "differs from the document alone", TWO | {"kernel": "broken"}),
    ("select and rewind", ATTENTIONS, UnselectedAttention, "behind `select`", CROSS),
    ("gradients", FFNS, Unused, "encoder.0.ffn.spare is not in the", TWO | {"encoder": {"ffn": "broken"}}),
    ("gradients", ATTENTIONS, Blind, "the gradient of encoder.0.attn.q.weight is zero", CROSS),
    ("kernels", KERNELS, NoScale, "'broken' in fp32, plain: logits is off", {}),
    ("kernels", KERNELS, NoGradientOfKeys, "fp32, plain: embed.weight is off", {}),
    ("kernels", KERNELS, Coarse, "'broken' in bf16, plain", {}),
    ("precision", FFNS, Single, "float32 differs from float64", {"ffn": "broken"}),
    ("gradients", FFNS, Unused, "ffn.spare is not in the step's graph", {"ffn": "broken"}),
    ("gradients", FFNS, Useless, "the gradient of decoder.0.ffn.spare is zero", {"ffn": "broken"}),
    ("gradients", FFNS, InfiniteGradient, "is not finite", {"ffn": "broken"}),
    ("gradients", FFNS, Counting, "ffn.calls is written in forward", {"ffn": "broken"}),
    ("start", NORMS, DrawnByHand, "starts elsewhere when torch's generator does", {"norm": "broken"}),
    ("rebuild", FFNS, Noisy, "something else", {"ffn": "broken"}),
    ("rebuild", FFNS, NotMeta, "meta device. has other parameters", {"ffn": "broken"}),
    ("mask", MASKS, OneAhead, "sees the future and says that it does not", {"mask": "broken"}),
    ("mask", MASKS, WrongBand, "is not the band", {"mask": "broken"}),
    ("mask", MASKS, HeadsDiffer, "differs between heads", {"mask": "broken"}),
    ("mask", MASKS, CountsQueries, "is not point-wise", {"mask": "broken"}),
    ("mask", MASKS, Identified, "is no value", {"mask": "broken"}),
]


@pytest.mark.parametrize(
    ("law", "registry", "part", "match", "composition"),
    ARGUMENTS,
    ids=[f"{law}-{part.__name__}" for law, _, part, _, _ in ARGUMENTS],
)
def test_a_broken_part_is_caught(law, registry, part, match, composition):
    bites(law, registry, part, match, **composition)


def test_a_null_gradient_may_be_named():
    with registered(FFNS, Named):
        assert LAWS["gradients"](tiny(ffn="broken")) is None


def test_a_head_that_forgets_its_tie_is_caught(monkeypatch):
    monkeypatch.setattr(
        "xformer_kit.model.TiedHead", lambda embed, *rest: Head(nn.Parameter(embed.weight.clone()), *rest)
    )
    with pytest.raises(LawBroken, match="the head and the embedding are two storages"):
        LAWS["tying"](tiny())


def test_a_head_that_is_saved_twice_is_caught(monkeypatch):
    monkeypatch.setattr("xformer_kit.model.TiedHead", lambda embed, *rest: Head(embed.weight, *rest))
    with pytest.raises(LawBroken, match="a tied head is saved twice"):
        LAWS["tying"](tiny())


def test_towers_that_forget_what_they_share_are_caught(monkeypatch):
    class Apart(Model):
        def __init__(self, config, vocab_size, source_vocab_size=None):
            super().__init__(config, vocab_size, source_vocab_size)
            self.source_embed = nn.Embedding(*self.embed.weight.shape)

    monkeypatch.setattr("xformer_kit.laws.case.Model", Apart)
    with pytest.raises(LawBroken, match="source and target are embedded by two matrices"):
        LAWS["tying"](tiny("encoder_decoder"))


def test_weights_that_depend_on_other_parts_are_caught(monkeypatch):
    """One generator for all parameters in turn, as plain torch has it."""
    from xformer_kit import init

    def shared(seed, name):
        if name == "embed.weight":
            shared.source = torch.Generator().manual_seed(seed)
        return shared.source

    monkeypatch.setattr(init, "generator", shared)
    with pytest.raises(LawBroken, match=r"decoder\.0\.attn\.q\.weight starts elsewhere with position=learned"):
        LAWS["start"](tiny())


def test_a_seed_without_effect_is_caught(monkeypatch):
    from xformer_kit import init

    generator = init.generator
    monkeypatch.setattr(init, "generator", lambda seed, name: generator(0, name))
    with pytest.raises(LawBroken, match="another seed gives the same weights"):
        LAWS["start"](tiny())


def test_a_config_that_changes_when_it_is_saved_is_caught(monkeypatch):
    real = config_module.config_yaml
    monkeypatch.setattr(building_laws, "config_yaml", lambda config: real(config).replace("layers: 2", "layers: 3"))
    with pytest.raises(LawBroken, match="the config changes when it is saved and read: model"):
        LAWS["rebuild"](tiny())


def test_every_law_is_seen_to_bite():
    by_hand = {"tying"}
    assert {law for law, *_ in ARGUMENTS} | by_hand == set(LAWS)


# A part may name a law that its mathematics breaks.


class Honest(MeanOverPast):
    breaks = {"documents": "takes the mean over all that came before", "cache": "keeps no state of its mean."}


def test_a_part_is_exempt_from_a_law_that_it_names():
    with registered(FFNS, Honest):
        results = {result.law: result for result in check_part("ffn", "broken")}
    assert {r.verdict for r in results.values()} == {"ok", "skipped", "broken"}
    sentence = "ffn 'broken' breaks the law of documents (takes the mean over all that came before)."
    assert results["documents"] == ("ffn broken", "documents", "skipped", sentence)
    assert results["greedy"].verdict == "skipped"  # it stands under the law of caches
    assert results["padding"].verdict == "broken"


class Misspelt(MLP):
    breaks = {"paddding": "a typo"}


def test_a_law_that_is_misspelt_is_answered_with_the_nearest():
    with registered(FFNS, Misspelt):
        [result] = check_part("ffn", "broken")
    assert result.verdict == "broken"
    assert result.sentence.startswith("no law is called 'paddding'. Did you mean 'padding'? Known: ")


def test_a_part_that_breaks_a_law_is_refused_where_the_task_needs_it():
    with registered(FFNS, Honest), pytest.raises(ConfigError) as caught:
        compose(["logger=none", "ffn=broken"])
    assert str(caught.value) == (
        "ffn: 'broken' breaks the law of cache (keeps no state of its mean), which task=language_modeling needs. "
        "Choose another ffn."
    )


# A user's file.

MINE = '''
from torch import nn
from xformer_kit.norm import NORMS

@NORMS.register("mine")
class Mine(nn.Module):
    """x * knob."""

    def __init__(self, dim: int, *, knob: float = 0.5):
        super().__init__()
        self.knob = knob

    def forward(self, x):
        return {body}
'''


def judged(tmp_path: Path, body: str):
    file = tmp_path / "my_parts.py"
    file.write_text(MINE.format(body=body))
    try:
        results = check_file(str(file))
    finally:
        for name in [part.__module__ for part in NORMS.values() if "my_parts" in part.__module__]:
            NORMS.forget(name)
    assert {result.part for result in results} == {"norm mine"}
    return {result.law: result for result in results}


def test_a_users_file_passes(tmp_path):
    results = judged(tmp_path, "x * self.knob")
    assert {result.verdict for result in results.values()} == {"ok"}


def test_a_users_file_is_caught(tmp_path):
    results = judged(tmp_path, "x * self.knob + x.mean(1, keepdim=True)")
    assert results["causality"].verdict == "broken"
    assert "norm=mine" in results["causality"].sentence


def test_a_users_part_that_raises_is_answered_by_a_sentence(tmp_path):
    results = judged(tmp_path, "x @ 3")
    assert "raised TypeError: " in results["causality"].sentence


def test_a_file_without_parts_is_answered_by_a_sentence(tmp_path):
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ConfigError, match=r"^parts: .*empty\.py registers no part; decorate one, e\.g\. @ATTENTIONS"):
        check_file(str(tmp_path / "empty.py"))
