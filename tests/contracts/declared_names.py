"""The names that components declare and other code reads, derived from the code.

A name is declared if a registered component, or a class that several share, overrides it from the
base of its kind or assigns it; if an override of `traits` sets it; or if it is read by getattr or
hasattr, for which no base is needed.
"""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from xformer_kit import attention, mask, position
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.ffn import FFN, FFNS
from xformer_kit.ffn.dense import Dense
from xformer_kit.ffn.moe import EXPERTS
from xformer_kit.ffn.routes import ROUTERS, Router
from xformer_kit.kernel import KERNELS, Kernel
from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.position.scaling import Scaling

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "xformer_kit"
FOLDERS = ("attention", "mask", "position", "norm", "placement", "ffn", "kernel", "extra", "zoo")
KINDS = {
    "attn": (attention.ATTENTIONS, attention.Attention),
    "attn.gate": (attention.GATES, attention.Gate),
    "attn.qk_norm": (attention.QK_NORMS, attention.QKNorm),
    "attn.score": (attention.SCORES, attention.Score),
    "mask": (mask.MASKS, mask.Mask),
    "position": (position.POSITIONS, position.Position),
    "position.scaling": (position.SCALINGS, Scaling),
    "placement": (PLACEMENTS, Placement),
    "ffn": (FFNS, FFN),
    "ffn.router": (ROUTERS, Router),
    "ffn.expert": (EXPERTS, Dense),
    "extra": (EXTRAS, Extra),
    "kernel": (KERNELS, Kernel),
}
READERS = ("getattr", "hasattr")
OTHERS = {"blocks", "rows", "weight"}  # of stacks, data and linear maps


def declared() -> dict[str, set[str]]:
    """Name -> the kinds whose components declare it; `any` if it is read from all kinds."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind, (registry, base) in KINDS.items():
        contract = {name for one in own_classes(base) for name in vars(one)}
        classes = {one for name in registry for one in own_classes(registry[name])}
        for one in classes - set(own_classes(base)):
            for name in names_of(one) & contract:
                found[name].add(kind)
    for name in traits_that_overrides_set():
        found[name].add("attn")
    found |= {name: {"any"} for name in read_by_name() & set(assigned_in_components())}
    return {name: kinds for name, kinds in found.items() if not name.startswith("_")}


def own_classes(cls: type) -> list[type]:
    return [one for one in inspect.getmro(cls) if one.__module__.startswith("xformer_kit.")]


def names_of(cls: type) -> set[str]:
    """What a class declares in its body, or assigns to itself."""
    return {name for name, _ in assigned(ast.parse(inspect.getsource(cls)))}


def assigned(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names of methods and class attributes, and attributes of self that are assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    yield one.name, one
                for target in getattr(one, "targets", [getattr(one, "target", None)]):
                    if isinstance(target, ast.Name) and getattr(one, "value", None) is not None:
                        yield target.id, one
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [(node.attr, node)] * (getattr(node.value, "id", "") == "self")


def component_files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (LIBRARY / folder).rglob("*.py")


def bases() -> set[type]:
    return {one for _, base in KINDS.values() for one in own_classes(base)} - {Dense}


def assigned_in_components() -> Iterator[str]:
    """Names that classes of components declare or assign; those of the bases of kinds are not."""
    named = {one.__name__ for one in bases()}
    for path in component_files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name not in named:
                yield from (name for name, _ in assigned(node))


def traits_that_overrides_set() -> set[str]:
    """Fields of AttentionTraits that an attention sets in its own `traits`."""
    found = set()
    for path in component_files():
        for name, node in assigned(ast.parse(path.read_text())):
            if name == "traits" and path.name != "base.py":
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                replaced = [one for one in calls if getattr(one.func, "id", "") == "replace"]
                found |= {word.arg for call in replaced for word in call.keywords if word.arg}
    return found


def read_by_name() -> set[str]:
    """Names that code outside of the zoo reads with getattr or hasattr, but not from `self`."""
    found = set()
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if "zoo" not in path.parts else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in READERS:
                owner, *name = node.args
                if getattr(owner, "id", "") != "self":
                    found |= {one.value for one in name[:1] if isinstance(one, ast.Constant)}
    return found - OTHERS
