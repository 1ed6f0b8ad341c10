"""Pictures of components that need a model: positions, placements, initial weights."""

from typing import Any

import torch
from torch import Tensor, nn

from docs.function_pictures import FAINT, INK
from docs.kinds import KINDS
from xformer_kit.laws import tiny_config
from xformer_kit.model.build import build_model
from xformer_kit.tensors.tokens import Tokens

COLOURS = ("#1a1a1a", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#7a5c00")
VOCAB, DIM, HEADS, LAYERS, LENGTH = 61, 96, 6, 6, 64
HEAD_DIM, TOKENS = 64, 512  # of the picture of a rotation


def position(figure: Any, name: str) -> str:
    """Draws what a position adds to embeddings or scores, or the effect of its rotation."""
    component = KINDS["position"][name]
    slot = torch.arange(LENGTH)[None]
    tokens = Tokens(slot=slot, position=slot)
    draw = next(draw for hook, draw in HOOKS.items() if hook in component.enters)
    with torch.no_grad():
        return draw(figure, name, tokens)


def _embed(figure: Any, name: str, tokens: Tokens) -> str:
    module = KINDS["position"].create({"name": name}, dim=HEAD_DIM, max_len=LENGTH)
    added = module.embed(torch.zeros(1, LENGTH, HEAD_DIM), tokens)[0]
    axes = figure.subplots()
    figure.colorbar(
        axes.imshow(added.T.tolist(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1), ax=axes
    )
    axes.set(xlabel="position", ylabel="channel")
    return f"Values added to {HEAD_DIM} channels of the first {LENGTH} tokens"


def _rotate(figure: Any, name: str, tokens: Tokens) -> str:
    slot = torch.arange(TOKENS)[None]
    tokens = Tokens(slot=slot, position=slot)
    module = KINDS["position"].create(
        {"name": name}, dim=HEAD_DIM, heads=1, head_dim=HEAD_DIM, max_len=TOKENS, layers=1
    )
    tables = module.prepare(tokens, tokens)
    ones = torch.ones(1, 1, TOKENS, HEAD_DIM)
    q, k = tables.rotate(ones, tokens), tables.rotate_key(ones, tokens)
    axes = figure.subplots()
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.plot((q[0, 0, -1] @ k[0, 0].T / HEAD_DIM).flip(0).tolist(), color=INK)
    axes.set(xlabel="distance, tokens", ylabel="q k / head_dim")
    return (
        f"Product of a rotated query and key, both ones in {HEAD_DIM} channels, by their distance"
    )


def _bias(figure: Any, name: str, tokens: Tokens) -> str:
    module = next(iter(_model(position=name).decoder.position.values()))
    head = torch.arange(HEADS).view(1, -1, 1, 1)
    bias = module.prepare(tokens, tokens).bias(tokens.as_query(), tokens.as_key(), head)
    axes = figure.subplots()
    for i, values in enumerate(bias.expand(1, HEADS, LENGTH, LENGTH)[0, :, -1].flip(-1)):
        axes.plot(values.tolist(), color=COLOURS[i], label=str(i))
    axes.legend(title="head", frameon=False, ncols=2)
    axes.set(xlabel="distance, tokens", ylabel="added to the score")
    start = ", initial parameters" if module.learned else ""
    return f"Bias of the last of {LENGTH} queries for each key before it, in {HEADS} heads{start}"


HOOKS = {"rotate": _rotate, "bias": _bias, "embed": _embed}


def placement(figure: Any, name: str) -> str:
    """Draws the size of the residual stream after each block of an initialized model."""
    model, sizes = _model(placement=name), list[float]()
    for block in model.decoder.blocks:
        block.register_forward_hook(
            lambda module, given, out: sizes.append(_size(model.decoder, out[0]))
        )
    ids = torch.randint(VOCAB, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model(ids)
    axes = figure.subplots()
    axes.plot(range(1, len(sizes) + 1), sizes, "o-", color=INK, markersize=3)
    axes.set(xlabel="block", ylabel="root mean square", ylim=(0, 1.1 * max(sizes)))
    return (
        f"Residual stream after each of {LAYERS} blocks with initial weights, before the final"
        f" norm: dim={DIM}, init=xavier"
    )


def _size(stack: Any, state: tuple[Tensor, ...]) -> float:
    """Returns the root mean square of the stack's output for a state, without the final norm."""
    return stack.placement.finish(state, lambda x: x).square().mean().sqrt().item()


def init(figure: Any, name: str) -> str:
    """Draws the standard deviation of each weight matrix by layer."""
    model = _model(init={"name": name})
    blocks = [dict(block.named_modules()) for block in model.decoder.blocks]
    names = [word for word, module in blocks[0].items() if isinstance(module, nn.Linear)]
    figure.subplots_adjust(right=0.76)
    axes = figure.subplots()
    for colour, word in zip(COLOURS * 2, names, strict=False):
        axes.plot(
            range(1, LAYERS + 1),
            [block[word].weight.std().item() for block in blocks],
            color=colour,
            label=word,
        )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set(xlabel="layer", ylabel="standard deviation", ylim=(0, None))
    return f"Standard deviations of the weight matrices of {LAYERS} layers: dim={DIM}"


def _model(**components: Any) -> Any:
    """Returns a small decoder with initial weights."""
    chosen = {"ffn": "mlp", "attn": {"name": "multi_head", "heads": HEADS}, **components}
    start = KINDS["init"].complete(chosen.pop("init", "xavier"))
    config = tiny_config(**chosen) | {"init": start}
    config["model"] |= {"dim": DIM, "layers": LAYERS, "max_len": LENGTH}
    return build_model(config, VOCAB).eval()
