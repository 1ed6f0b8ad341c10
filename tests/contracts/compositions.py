"""The compositions that the tests of this directory run over, and how they are built."""

from functools import cache

import torch
from torch import Tensor

from xformer_kit import build, compose
from xformer_kit.model.model import Model
from xformer_kit.objective.language_modeling import LanguageModeling
from xformer_kit.tensors.tokens import Tokens

VOCAB = 29  # tokens
LENGTH = 19  # tokens of an example: no multiple of anything
TINY = [
    "model.dim=24",
    "model.layers=3",
    "attn.heads=4",
    f"data.seq_len={LENGTH}",
    "ffn.width=20",
    "logger=none",
]

# They register the components that are only in these tests.
CONTRACT_MODULES = (
    "contract_attentions",
    "contract_positions",
    "contract_placements",
    "contract_ffns",
)
PROOFS = {  # the components of those modules, one by one
    "latent": ["attn=test_latent"],
    "t5": ["position=test_t5"],
    "t5_reference": ["position=test_t5", "kernel=reference"],
    "residual": ["placement=test_residual"],
    "linear": ["attn=test_linear", "position=learned"],
    "router": ["ffn=test_router"],
    "disentangled": ["position=test_disentangled", "attn.kv_heads=2"],
    "first_values": ["attn=test_first_values"],
}
BUILT_IN = {
    "plain": [],
    "untied": [
        "model.tie_embeddings=false",
        "position=learned",
        "norm=layer",
        "ffn=mlp",
        "placement=post",
    ],
    "alibi": [
        "position=alibi",
        "attn.kv_heads=2",
        "placement=sandwich",
        "mask=sliding_window",
        "mask.window=7",
    ],
    "mixed": [  # variants, parallel sublayers, a second position
        "model.decoder.pattern=[local,base]",
        "model.decoder.variants.local={mask:{name:sliding_window,window:5},position:{theta:100},"
        "layout:[[attn,ffn]]}",
    ],
    "future": ["extra.future_tokens.count=3", "ffn=test_router"],
    "moe": [
        "ffn=moe",
        "ffn.experts=4",
        "ffn.shared=1",
        "ffn.router={name: sigmoid, correction: 0.1}",
        "ffn.expert.bias=true",
    ],
    "ngpt": [  # weights that change after the optimizer's step
        "placement=ngpt",
        "extra.unit_weights={}",
        "model.logit_scale=learned",
        "model.tie_embeddings=false",
        "ffn.scales=true",
        "attn.qk_norm.name=each_head",
        "attn.qk_norm.after=true",
    ],
}
ALL = PROOFS | BUILT_IN
TWO_STACKS = {
    "two_stacks": ["model=encoder_decoder", "task=seq2seq", "model.encoder.layers=2"],
    "two_apart": [  # everything of the source's own, and what crosses layers in both stacks
        "model=encoder_decoder",
        "task=seq2seq",
        "model.share_embeddings=false",
        "model.tie_embeddings=false",
        "position=test_t5",
        "model.decoder.cross={heads: 2, position: rotary}",
        "model.encoder.position.name=learned",
        "ffn=test_router",
        "model.embed_norm=true",
        "model.encoder.layers=2",
    ],
}


@cache
def config_of(name: str, *more: str) -> dict:
    return compose([*TINY, *(ALL | TWO_STACKS)[name], *more])


def model_of(name: str, *more: str, dtype: torch.dtype = torch.float64) -> Model:
    """A composition with weights large enough for every component to matter: its own start keeps
    all scores near zero.
    """
    model = build(config_of(name, *more), vocab_size=VOCAB).to(dtype)
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=source) * parameter.shape[-1] ** -0.5
                )
    return model


def batch(rows: int = 4, length: int = LENGTH, padded: bool = False, seed: int = 0) -> Tokens:
    """Token ids (rows, length); padded on the left of every second row if `padded`."""
    ids = torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))
    real = None
    if padded:
        real = torch.arange(length)[None] >= (torch.arange(rows) % 2 * 3)[:, None]
    return Tokens(ids=ids, real=real)


def given(model: Model, tokens: Tokens) -> dict[str, Tokens]:
    """What two stacks are given besides the tokens: a source of 11 tokens, padded where the tokens
    are.
    """
    if not model.two_stacks:
        return {}
    return {"source": tokens.map(lambda field: field.flip(-1)[:, -11:])}


def loss_of(model: Model, tokens: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean next-token loss in nats with the components' own losses and those of later tokens, and
    the report.
    """
    if model.predictions:
        nats, count, report = LanguageModeling().loss(model, {"tokens": tokens})
        return nats / count + report.get("loss", 0), report
    seen, target = tokens.shifted()
    hidden, report = model.hidden(seen, **given(model, tokens))
    return model.head(hidden, target) / (target >= 0).sum() + report.get("loss", 0), report
