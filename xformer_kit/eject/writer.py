"""Collects the classes and functions of an ejected file, and the values of its config."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from xformer_kit.registry import config_error

# What the fields of the config mean.
COMMENTS = {
    "vocab_size": "number of logits",
    "vocab_rows": "rows of the embedding, some of them unused",
    "layers": "number of layers",
    "kinds": "the kind of each layer",
    "embed_scale": "factor on embeddings",
    "buckets": "distances with a bias of their own",
    "longest": "larger distances share the last bucket",
    "dim": "channels of the residual stream",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "channels of a head",
    "v_head_dim": "channels of a head's values",
    "width": "hidden channels of a feed-forward network",
    "max_len": "longest text in tokens",
    "theta": "base of the wavelengths of positions",
    "rotated": "channels of a head that are rotated",
    "window": "tokens that a token sees, with itself",
    "eps": "of norms",
    "experts": "networks of a mixture",
    "top_k": "experts of a token",
    "expert_width": "hidden channels of an expert",
    "scale": "factor on scores",
    "residual_multiplier": "factor on what a sublayer adds",
}


def refused(path: str, value: Any) -> Exception:
    """The fault of an option that no template has."""
    text = f"'{value}'" if isinstance(value, str) else value
    rule = "has no template, so that no file of PyTorch can be written"
    return config_error(path, rule, got=text)


class Writer:
    """Renders templates, each with its flags once.

    A value, such as a number of heads, that is the same wherever its name is used becomes a field
    of the config, `c.heads`; others are arguments of the constructors. Which is which is known
    after all parts were rendered once: the file is written twice, the second time with `known`,
    the first writer. options: of the model.
    """

    def __init__(self, known: "Writer | None", two_stacks: bool, options: Mapping[str, Any]):
        self.known = known
        self.two_stacks = two_stacks
        self.options = options
        self.extras: Mapping[str, Any] = {}  # name -> options
        self.values: dict[str, list[Any]] = {}  # name -> its different values
        self.names: dict[Any, str] = {}  # (template, flags) -> name of the class or function
        self.texts: dict[str, str] = {}  # name -> source
        self.prefix = ""  # of names that are taken
        self.seen: dict[Any, list[Any]] = {}  # a question -> the answers of its instances

    def value(self, name: str, value: Any) -> str:
        """Returns the expression of a value: a field of the config, or the value itself."""
        own = self.values.setdefault(name, [])
        if value not in own:
            own.append(value)
        return f"c.{name}" if self.is_field(name) else literal(value)

    def is_field(self, name: str) -> bool:
        """Whether a value has one number in the whole model."""
        return self.known is None or len(self.known.values[name]) == 1

    def instances(self, question: Any, answer: Any) -> list[Any]:
        """Returns the answers of all instances of a class, and notes this one."""
        self.seen.setdefault(question, []).append(answer)
        return [answer] if self.known is None else self.known.seen[question]

    def part(
        self,
        template: str,
        name: str,
        values: Mapping[str, Any] | None = None,
        **flags: Any,
    ) -> str:
        """Returns the name of a class or function of a template with these flags and values, which
        is added to the file if it is new.
        """
        values = values or {}
        key = template, repr(sorted(flags.items(), key=lambda item: item[0])), tuple(sorted(values))
        if key in self.names:
            for field, value in values.items():
                self.value(field, value)
            return self.names[key]
        own = self.names[key] = self._new_name(name)
        shown = {field: self.value(field, value) for field, value in values.items()}
        arguments = [field for field in values if not self.is_field(field)]
        shown |= dict(zip(arguments, arguments, strict=True))
        norm = flags.pop("norm", None)
        if norm is not None:
            eps = next((shown[field] for field in shown if field.endswith("eps")), "")
            flags["norm"] = lambda dim: norm.replace("DIM", dim).replace("EPS", eps)
        args = "".join(f", {field}: {_type(values[field])}" for field in arguments)
        text = _template(template).render(name=own, args=args, **shown, **flags)
        self.texts[own] = text.strip("\n") + "\n"
        return own

    def _new_name(self, name: str) -> str:
        """The name of a class: if it is taken, that of the stack or of the variant before it."""
        prefix = self.prefix if name in self.texts and name[0].isupper() else ""
        prefixed = prefix + name
        count = sum(other.rstrip("0123456789") == prefixed for other in self.texts) + 1
        return prefixed if count == 1 else f"{prefixed}{count}"

    def call(self, name: str, values: Mapping[str, Any] | None = None, more: str = "") -> str:
        """Returns the call of a class that `part` returned, with the same values."""
        literals = {k: v for k, v in (values or {}).items() if not self.is_field(k)}
        arguments = "".join(f", {k}={literal(v)}" for k, v in literals.items())
        return f"{name}(c{more}{arguments})"

    def fields(self) -> list[str]:
        """Returns the lines of the config."""
        lines = []
        for name, values in self.values.items():
            if len(values) > 1:
                continue
            comment = f"  # {COMMENTS[name]}" if name in COMMENTS else ""
            lines.append(f"{name}: {_type(values[0])} = {literal(values[0])}{comment}")
        return lines


def literal(value: Any) -> str:
    """The value as Python text."""
    if isinstance(value, tuple) and len(value) > 4 and isinstance(value[0], (str, int)):
        return _runs(value)
    text = repr(value)
    return text.replace("'", '"') if isinstance(value, (str, tuple)) else text


def _runs(values: tuple[Any, ...]) -> str:
    """A long tuple by its period: (("local",) * 5 + ("global",)) * 4."""
    for period in range(1, len(values) // 2 + 1):
        if all(value == values[i % period] for i, value in enumerate(values)):
            times, rest = divmod(len(values), period)
            text = _sum(values[:period])
            text = f"({text})" if " + " in text or " * " in text else text
            return f"{text} * {times}" + (f" + {_sum(values[:rest])}" if rest else "")
    if values == tuple(range(len(values))):
        return f"tuple(range({len(values)}))"
    return _sum(values)


def _sum(values: tuple[Any, ...]) -> str:
    """A tuple as a sum of its runs of one value."""
    runs: list[list[Any]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    if all(count == 1 for _, count in runs):
        return repr(values).replace("'", '"')
    parts = (repr((value,)).replace("'", '"') + (f" * {n}" if n > 1 else "") for value, n in runs)
    return " + ".join(parts)


def _type(value: Any) -> str:
    if isinstance(value, tuple):
        return f"tuple[{type(value[0]).__name__}, ...]"
    return type(value).__name__


@cache
def _template(name: str) -> Any:
    import jinja2

    loader = jinja2.PackageLoader("xformer_kit.eject", "templates")
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **options)
    environment.globals["apply_norm"] = _apply_norm
    return environment.get_template(f"{name}.jinja")


def render(template: str, **values: Any) -> str:
    """Returns the text of a template."""
    return _template(template).render(**values)


def _apply_norm(name: str, over: str, x: str, unit: str, groups: int) -> str:
    """The expression of a norm of queries, keys or values x (b, h, t, d)."""
    if over == "each_head":
        pairs = f"zip(self.{name}, {x}.unbind(1), strict=True)"
        return f"torch.stack([norm(head) for norm, head in {pairs}], 1)"
    if over == "projection":
        flat = f"self.{name}.norm({x}.transpose(1, 2).flatten(2))"
        return f"{flat}.unflatten(-1, ({x}.shape[1], -1)).transpose(1, 2)"
    if over == "unit":
        text = f"{unit}({x})"
        if groups > 1:
            text = f"{unit}({x}.unflatten(-1, ({groups}, -1))).flatten(-2)"
        return text + (f" * self.{name}.weight[:, None, None]" if name == "q_norm" else "")
    return f"self.{name}({x})"
