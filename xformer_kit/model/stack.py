"""A stack: blocks over one residual stream, with the positions, masks and kernels that they look
through.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS, KeyValueCache, WindowCache
from xformer_kit.attention.base import Cache
from xformer_kit.attention.token_shift import TokenShift
from xformer_kit.ffn import FFNS
from xformer_kit.ffn.deep_embed import DeepEmbed
from xformer_kit.kernel import KERNELS, Either, Flex, Kernel
from xformer_kit.mask import MASKS, Mask
from xformer_kit.model.block import READ, Block, Memo, Report
from xformer_kit.model.cache import Past
from xformer_kit.model.tokens import Tokens, View
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS, Skips
from xformer_kit.plan import (
    BlockPlan,
    StackPlan,
    SublayerPlan,
    broken_laws,
    depths,
    facts,
    kernel_of,
    max_len,
    refuses_on,
)
from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import ConfigError


class Look(NamedTuple):
    """What an attention looks through. Attentions with equal looks share one view and its
    tables.
    """

    mask: Mask
    position: str  # name of the stack's position
    kernel: str
    heads: int
    cross: bool
    memory: int = 0  # learned keys in front of those of the text


def _placed(tokens: Tokens) -> Tokens:
    """Between two stacks places are compared, not the order of arrival, which padding and packing
    move.
    """
    return tokens._replace(slot=tokens.position)


class Stack(nn.Module):
    """Blocks, called `0`, `1`, ...; `position` holds each position that they use; `norm` is the
    final norm.

    `future` holds, where there are any, blocks that stand beside the last one and read what it
    reads: `2` is for the token behind the next one, ... (Gloeckle et al., 2024, arXiv:2404.19737,
    section 2, whose first head is the last block).

    Layers may share a block, which is owned once and called several times: `order` says which,
    layer by layer. Caches are one for each layer.
    """

    norm: nn.Module
    keep: Tensor | None

    def __init__(self, config: Mapping[str, Any], plan: StackPlan, tokens: int = 0):
        super().__init__()
        model = config["model"]
        # those of the embedding
        self.dim = model["dim"]
        self.tokens = tokens
        self.kernels: dict[str, Kernel] = {}  # by name and options
        self.position = nn.ModuleDict()
        self.looks: list[Look] = []
        self._places: dict[str, tuple[Any, int, int, int | None]] = {}
        base = plan.variants["base"]
        place = base.nodes["position"]
        if "embed" in POSITIONS[place["name"]].hooks():  # also where no attention looks through it
            self._position(config, plan, base, place, facts(base.nodes, self.dim)["attn"])
        self.order = plan.calls
        self.shift = (
            TokenShift(self.dim, model["shift_tokens"]) if model.get("shift_tokens") else None
        )
        for at in range(max(self.order) + 1):
            depth = self.order.index(at)
            self.add_module(
                str(at), self._block(config, plan, plan.blocks[depth], depth, self.order.count(at))
            )
        last = len(plan.blocks) - 1
        self.future = nn.ModuleDict(
            {
                str(ahead): self._block(config, plan, plan.blocks[last], last, 1)
                for ahead in range(2, plan.future + 2)
            }
        )
        del self._places
        self.hooks = {name: type(position).hooks() for name, position in self.position.items()}  # type: ignore[attr-defined]
        self.placement = PLACEMENTS[base.nodes["placement"]["name"]]
        self.states = self.placement.streams(base.nodes["placement"])
        wanted = model.get("final_norm")
        normed = self.placement.final_norm if wanted is None else wanted
        norm = partial(NORMS.create, base.nodes["norm"], dim=self.dim)
        self.norm = norm() if normed else nn.Identity()
        inner = model["embed_dim"] or self.dim
        self.embed_norm = (
            NORMS.create(base.nodes["norm"], dim=inner) if model["embed_norm"] else nn.Identity()
        )
        self.project = nn.Linear(inner, self.dim) if inner != self.dim else nn.Identity()
        self.depth = len(plan.blocks)
        self.kinds = len({block.variant for block in plan.blocks})
        if self.placement.grows:  # no two layers have states of one length
            self.kinds = self.depth
        self.skip = Skips(self.dim, self.depth, model.get("reinject"), model.get("unet"))
        rate = model["stochastic_depth"]
        keep = 1 - rate * torch.arange(1, self.depth + 1) / self.depth if rate else None
        self.register_buffer(
            "keep", keep, persistent=False
        )  # (layers,): probability of staying, in training
        self.reach, self.source_reach = (self._reach(cross) for cross in (False, True))
        self.breaks = broken_laws(plan)
        self.cross_breaks = broken_laws(plan, cross=True)

    @property
    def longest(self) -> int | None:
        """Tokens that all of its positions know and that its attentions can look at; None: no
        limit.
        """
        limits: list[Any] = [p.max_len for p in self.position.values()] + [self.reach]
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None  # `default` breaks the graph when compiled

    def _reach(self, cross: bool) -> int | None:
        """Tokens that its attentions can look at, of its own or of a source; None: no limit."""
        pairs = (
            (a, name in block.crosses)
            for block in self.blocks
            for name, a in block.attentions().items()
        )
        return min(
            (a.max_len for a, across in pairs if across == cross and a.max_len is not None),
            default=None,
        )

    def embedded(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Embeddings (b, t, embed_dim) with the position of the stack's base, where that embeds, a
        norm behind it, and the map to (b, t, dim).
        """
        if "base" in self.position:
            x = self.position["base"].embed(x, tokens)  # type: ignore[operator]
        return self.project(self.embed_norm(x))

    @property
    def sees_prefix(self) -> bool:
        """Whether some attention sees the tokens of a prefix whole."""
        return any(look.mask.sees_prefix for look in self.looks if not look.cross)

    @property
    def blocks(self) -> list[Block]:
        return [self._modules[str(at)] for at in range(max(self.order) + 1)]  # type: ignore[misc]

    @property
    def named_blocks(self) -> dict[str, Block]:
        """All blocks, those of `future` behind the others: name in the stack -> block."""
        future = {f"future.{ahead}": block for ahead, block in self.future.items()}
        return {str(depth): block for depth, block in enumerate(self.blocks)} | future  # type: ignore[return-value]

    @property
    def calls(self) -> list[Block]:
        """The block of each layer; layers may share one."""
        return [self._modules[str(at)] for at in self.order]  # type: ignore[misc]

    def _block(self, config, plan: StackPlan, block: BlockPlan, depth: int, called: int) -> Block:
        given = {"dim": self.dim, "depth": depth, "layers": len(plan.blocks)}
        modules, looks, crosses = {}, {}, []
        for sub in (sub for group in block.groups for sub in group):
            norm = partial(_norm, sub.norm)
            if sub.kind == "ffn":
                modules[sub.name] = FFNS.create(sub.part, **given, norm=norm)
                continue
            look = self._look(config, plan, block, sub, depth)
            kernel = self.kernels[look.kernel]
            modules[sub.name] = ATTENTIONS.create(
                sub.part, **given, norm=norm, kernel=kernel, max_len=max_len(config)
            )
            looks[sub.name] = self.looks.index(look)
            crosses += [sub.name] if sub.cross else []
        given |= {"stack": plan.name, "stacks": depths(config)}
        last = len(plan.calls) - 1 - plan.calls[::-1].index(plan.calls[depth])
        placements, before, later = [], _groups(plan, 0, depth), _groups(plan, depth, last)
        for order, group in enumerate(block.groups, before):
            of_group = {
                "norm": partial(_norm, group[0].norm, self.dim),
                "kinds": [sub.kind for sub in group],
            }
            of_group |= {"order": order, "latest": order + later, "parallel": len(group)}
            placements.append(PLACEMENTS.create(block.nodes["placement"], **given, **of_group))
        groups = [[sub.name for sub in group] for group in block.groups]
        model = config["model"]
        steps = {
            sub.name: model["residual_multiplier"] * sub.multiplier
            for group in block.groups
            for sub in group
        }
        added = model["dropout"], steps
        deep = [
            sub.name
            for group in block.groups
            for sub in group
            if sub.kind == "ffn" and model.get("deep_embed")
        ]
        vectors = {name: DeepEmbed(self.tokens, self.dim) for name in deep}
        return Block(
            modules,
            groups,
            placements,
            looks,
            crosses,
            *added,
            called=called,
            shift=self.shift,
            deep=vectors,
        )

    def _look(
        self, config, plan: StackPlan, block: BlockPlan, sub: SublayerPlan, depth: int
    ) -> Look:
        said = ATTENTIONS[sub.part["name"]].facts(dict(sub.part), self.dim)
        position = self._position(config, plan, plan.variants["base"], sub.position, said, depth)
        kernel = {**sub.kernel, "name": kernel_of(config, plan, block, sub)}
        key = kernel["name"] + "".join(f" {k}={v}" for k, v in kernel.items() if k != "name")
        either = sub.kernel["name"] == "auto" and self._either(
            config, plan, block, sub, kernel["name"]
        )
        key += " or flex" if either else ""
        if key not in self.kernels:
            made = KERNELS.create(kernel)
            self.kernels[key] = Either(made, Flex()) if either else made
        look = Look(MASKS.create(sub.mask), position, key, said["heads"], sub.cross, said["memory"])
        if look not in self.looks:
            self.looks.append(look)
        return look

    @staticmethod
    def _either(config, plan: StackPlan, block: BlockPlan, sub: SublayerPlan, kernel: str) -> bool:
        """Whether there is a CUDA device on which flex may take the place of a kernel that auto
        chose.
        """
        if kernel != "sdpa" or not torch.cuda.is_available():
            return False
        return refuses_on("cuda", "flex", config, plan, block, sub) is None

    def _position(
        self, config, plan: StackPlan, base: BlockPlan, node, said, depth: int = 0
    ) -> str:
        """The name of the stack's position with these options, which is built where there is none.
        `base` is that of the stack's base; where it embeds, every attention that names it shares
        it. One with the option `per_layer` on is of its layer alone.
        """
        alone = bool(node.get("per_layer"))
        key = (dict(node), said["heads"], said["head_dim"], depth if alone else None)
        for name, there in self._places.items():
            if there == key or (
                there[0] == key[0] and POSITIONS[node["name"]].hooks() == ("embed",)
            ):
                return name
        own = dict(node) == dict(base.nodes["position"]) and "base" not in self._places
        shared = [other for other, (*_, layer) in self._places.items() if layer is None]
        name = "base" if own else f"other_{len(shared) + ('base' not in shared)}"
        if alone:
            same = sum(layer == depth for *_, layer in self._places.values())
            name = f"layer_{depth}" + (f"_{same + 1}" if same else "")
        self._places[name] = key
        given = {
            "heads": said["heads"],
            "head_dim": said["head_dim"],
            "layers": len(plan.blocks),
            "stack": plan.name,
        }
        embeds = "embed" in POSITIONS[node["name"]].hooks()
        dim = (config["model"]["embed_dim"] if embeds else None) or self.dim
        self.position[name] = POSITIONS.create(node, dim=dim, max_len=max_len(config), **given)
        return name

    def refuse(self, tokens: Tokens, breaks: Mapping[str, str]) -> None:
        """Raises ConfigError for tokens that need a law which a part breaks: better refused than
        silently wrong.
        """
        needs = (
            ("documents", "document", "one document per row"),
            ("padding", "real", "rows of one length"),
        )
        for law, field, way in needs:
            if law in breaks and getattr(tokens, field) is not None:
                raise ConfigError(f"{field}: {breaks[law]}. Give {way}, or choose another part.")

    def _unseen(self, past: Tokens, new: Tokens) -> None:
        """Raises ConfigError where tokens that were read would see new ones: a cache does not let
        them look again.

        It is so where a prefix comes in several calls, where a mask sees the future, and where a
        part breaks causality, and the law of caches with it.
        """
        if "cache" in self.breaks and "causality" in self.breaks:
            raise ConfigError(
                f"cache: {self.breaks['cache']}. Give all tokens in one call, or choose another"
                " part."
            )
        late = [
            look
            for look in self.looks
            if look.mask.sees_future or (look.mask.sees_prefix and new.prefix is not None)
        ]
        for look in (look for look in late if not look.cross):
            query, key = past.as_query(), new.as_key()
            seen = look.mask.allows(
                query, key, torch.arange(look.heads, device=new.slot.device).view(1, -1, 1, 1)
            )
            for real in (query.real, key.real):
                seen = seen if real is None else seen & real
            if query.document is not None and key.document is not None:
                seen = seen & (query.document == key.document)
            if not seen.any():
                continue
            if look.mask.sees_future:
                raise ConfigError(
                    f"cache: a mask sees the future, so the {past.length} tokens in the cache would"
                    f" have seen the {new.length} that are new. Give all tokens in one call, or"
                    " build the model with mask=causal."
                )
            raise ConfigError(
                f"prefix: is seen whole, so the {past.length} tokens in the cache would have seen"
                f" those of the {new.length} new ones that are of it. Give the whole prefix in the"
                " first call, and behind it tokens with prefix False."
            )

    def stale(self, past: Past, new: int) -> bool:
        """Whether what `past` holds is wrong beside `new` more tokens, so that all must be read
        anew.
        """
        if past.tokens is None:
            return False
        held, total = past.tokens, past.length + new
        positions: Any = self.position.values()
        return past.unread > 0 or any(position.stale(held, total) for position in positions)

    def views(
        self, query: Tokens, key: Tokens, source: Tokens | None, dtype: torch.dtype
    ) -> list[View]:
        """One view for each distinct look, with the tables of position and kernel."""
        made = []
        for look in self.looks:
            position: Position = self.position[look.position]  # type: ignore[assignment]
            kernel = self.kernels[look.kernel]
            asks, seen = (_placed(query), _placed(source)) if look.cross else (query, key)
            keys = seen if look.cross or position.whole else query
            hooks = self.hooks[look.position]
            view = View(asks, seen, look.mask, position.begin(asks, keys), cross=look.cross)
            view = view._replace(memory=look.memory, reads=position.reads)
            view = view._replace(scored="scores" in hooks, gain=position.score_gain())
            made.append(
                view._replace(prepared=kernel.prepare(view, look.heads, "bias" in hooks, dtype))
            )
        return made

    def forward(
        self,
        x: Tensor,
        tokens: Tokens,
        past: Past | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        future: bool = False,
    ) -> tuple[Tensor, Report]:
        """x (b, t, dim) -> (b, t, dim) and the reports of all blocks; appends `tokens` to `past`.

        With `future` (n, b, t, dim): the same, and behind it the outputs of the blocks for tokens
        further ahead.
        """
        if self.breaks:
            self.refuse(tokens, self.breaks)
            if source_tokens is not None:
                self.refuse(source_tokens, self.cross_breaks)
        key = tokens
        if past is not None:
            if past.tokens is not None:
                self._unseen(past.tokens, tokens)
            key = tokens if past.tokens is None else past.tokens.then(tokens)
            past.tokens = key
            key = past.seen(tokens.length)
        views = self.views(tokens, key, source_tokens, x.dtype)
        before = None if self.shift is None else self.shift.before(key, tokens.length)
        report: Report = {}
        memo: Memo = {}
        kept: list[Any] = []
        state = self.placement.start(x, self.states)
        for depth, block in enumerate(self.calls):
            caches = None if past is None else past.caches[depth]
            # one for each attention: an index into all views would give each layer its own graph
            at = [views[look] for look in block.looks.values()]
            at = [view._replace(depth=depth) for view in at] if depth else at
            state = self.skip(depth, state, kept, self.placement.joined)
            trunk = (state, memo) if future else None  # of which the last is what all heads read
            keep = self.keep[depth] if self.keep is not None and self.training else None
            state, said, memo = block(state, at, source, tokens, caches, memo, keep, before)
            _add(report, said, str(self.order[depth]))
        x = self.placement.finish(state, self.norm)
        if trunk is None:
            return x, report
        streams = [x]
        for (
            ahead,
            beside,
        ) in self.future.items():  # behind the last block, whose draws of dropout stay as they were
            state, said, _ = beside(trunk[0], at, source, tokens, None, trunk[1], None, before)
            _add(report, said, f"future.{ahead}")
            streams.append(self.placement.finish(state, self.norm))
        return torch.stack(streams), report

    def cache(self, rows: int, length: int, source_length: int = 0) -> Past:
        """Room for `rows` sequences of at most `length` tokens, beside a source of `source_length`.

        Where no attention sees further back than a window, room for that is enough.
        """
        left = self._left()
        if left is not None and WindowCache.room(left) < length:
            past = self._caches(rows, WindowCache.room(left), source_length)
            if past.narrow(left):
                return past
        return self._caches(rows, length, source_length)

    def _caches(self, rows: int, length: int, source_length: int) -> Past:
        caches = [
            {
                n: a.cache(rows, source_length if n in block.crosses else length)
                for n, a in block.attentions().items()
            }
            | self._read(block, rows, length)
            | block.shifts(rows, length)
            for block in self.calls
        ]
        return Past(caches, [block.crosses for block in self.calls])

    def _read(self, block: Block, rows: int, length: int) -> dict[str, Cache]:
        """Room for what positions read of the tokens, beside the attentions that look through
        them.
        """
        found: dict[str, Cache] = {}
        for name, look in block.looks.items():
            position: Position = self.position[self.looks[look].position]  # type: ignore[assignment]
            if (kept := position.keeps()) is not None and name not in block.crosses:
                heads, channels = kept
                like = next(position.parameters())
                shape = rows, heads, length, channels
                found[READ.format(name)] = KeyValueCache(
                    shape, dtype=like.dtype, device=like.device
                )
        return found

    def _left(self) -> int | None:
        """How many tokens before a new one are seen at most; None where some attention sees all,
        its position needs them all, or real tokens are counted back over padding.
        """
        if self.shift is not None:
            return None
        own = [look for look in self.looks if not look.cross]
        bands = [look.mask.band() for look in own]
        for look, band in zip(own, bands, strict=True):
            scored = "scores" in self.hooks[look.position]
            if band is None or band[0] == math.inf or band[1] > 0 or scored:
                return None
        return max((int(band[0]) for band in bands), default=None)  # type: ignore[index]


def _norm(node: Mapping[str, Any], dim: int) -> nn.Module:
    return NORMS.create(node, dim=dim)


def _groups(plan: StackPlan, start: int, end: int) -> int:
    """Groups of sublayers in these layers."""
    return sum(len(block.groups) for block in plan.blocks[start:end])


def _add(report: Report, said: Report, block: str) -> None:
    """Add what a block reports: losses are summed, the rest goes by its name."""
    for name, value in said.items():
        where = "loss" if name == "loss" else f"{block}.{name}"
        report[where] = report[where] + value if where in report else value
