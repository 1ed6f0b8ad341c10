"""The page of `python train.py --help`: groups and choices from the registries and the YAML
files.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks import Facts
from xformer_kit.config import GROUPS, compose
from xformer_kit.config.hydra_session import SWEEPS
from xformer_kit.config.settings import SETTINGS
from xformer_kit.config.trainer_schema import OPTIONS
from xformer_kit.inspect.components import summary, written

HEAD = """Train a transformer that is composed of components.

  python train.py [GROUP=CHOICE ...] [KEY=VALUE ...]
  python train.py -m KEY=VALUE,VALUE ...        one run for every combination
  python train.py resume=RUN                    go on with a run where it stopped
"""
TAIL = """
Instructions
  resume=RUN            a run's directory (outputs/NAME/TIME); takes no other argument
  components=[FILE, ...]  Python files with components of your own, which are then choices
  hydra.run.dir=DIR     where the run is written
  -m, --multirun        run every combination of the values that are separated by commas
  --cfg job             print the config, and run nothing
  --help                this page

Examples
  python train.py attn.heads=4 attn.kv_heads=2 position=alibi norm=layer placement=post
  python train.py data=text data.path=book.txt tokenizer=bpe tokenizer.vocab_size=2000
  python train.py mask=sliding_window mask.window=64 ffn=mlp ffn.width=512
  python train.py -m attn.heads=2,4,8 trainer.max_steps=500
  python train.py components=[my_components.py] attn=mine attn.knob=3
  python train.py debug=overfit logger=none

Look things up
  xformer components attn                            every option of a kind of component
  xformer describe attn.heads=4 model.layers=12     what a model costs, before it is built
"""
ORDER = (*GROUPS, "model", "trainer", "preset", "experiment", "debug", "study")


def train_help(width: int | None = None) -> str:
    """The page of `python train.py --help`, at most `width` columns wide (the terminal's)."""
    width = width or shutil.get_terminal_size((120, 24)).columns
    config = compose(data=False)  # the defaults, their experiment included
    chosen, groups = _defaults() | {group: config[group]["name"] for group in GROUPS}, _choices()
    names = [*(g for g in ORDER if g in groups), *sorted(g for g in groups if g not in ORDER)]
    left = max(map(len, names))
    lines = [HEAD, "Groups and their choices (* is the default)"]
    for group in names:
        middle = max(map(len, groups[group])) + 1
        for i, (name, said) in enumerate(groups[group].items()):
            mark = "*" if chosen.get(group) == name else " "
            lines.append(
                _cut(f"  {'' if i else group:{left}}  {mark}{name:{middle}} {said}", width)
            )
    lines += ["", "Values that most runs set (--cfg job prints all)"]
    values = list(_values(config))
    left = max(len(value) for value, _ in values)
    lines += [_cut(f"  {value:{left}}  {said}", width) for value, said in values]
    return "\n".join(lines) + "\n" + TAIL


def _cut(line: str, width: int) -> str:
    return line.rstrip() if len(line) <= width else line[: width - 3].rstrip() + "..."


def _choices() -> dict[str, dict[str, str]]:
    """Group -> choice -> one line on it: registered components, then YAML files."""
    found: dict[str, dict[str, str]] = {
        group: {name: summary(component) for name, component in registry.items()}
        for group, registry in GROUPS.items()
    }
    for path in sorted(_conf().glob("*/**/*.yaml"), key=lambda path: (len(path.parts), path)):
        group, *inside = path.relative_to(_conf()).with_suffix("").parts
        if group != SWEEPS:
            found.setdefault(group, {}).setdefault("/".join(inside), _first_comment(path))
    return found


def _first_comment(path: Path) -> str:
    """The first comment of a YAML file that is not an instruction to Hydra."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").rstrip(". ")
    return ""


def _defaults() -> dict[str, str]:
    """Group -> the choice that conf/train.yaml makes."""
    import yaml

    train = yaml.safe_load((_conf() / "train.yaml").read_text(encoding="utf-8"))
    pairs = [
        pair for entry in train["defaults"] if isinstance(entry, Mapping) for pair in entry.items()
    ]
    return {group: choice for group, choice in pairs if not group.startswith("override")}


def _values(config: Facts) -> Iterator[tuple[str, str]]:
    """Key=default and its meaning, of what is no component: the run, the model, the data, the
    trainer.
    """
    for node in ("run", "model", "data"):
        prefix, values = ("", config) if node == "run" else (f"{node}.", config[node])
        for key, option in SETTINGS.options(node).items():
            if key not in ("decoder", "encoder"):
                yield f"{prefix}{key}={written(values[key])}", option.meaning
    for key, value in config["trainer"].items():
        yield f"trainer.{key}={written(value)}", OPTIONS[key].meaning


def _conf() -> Any:
    from xformer_kit.config import conf_dir

    return Path(conf_dir())
