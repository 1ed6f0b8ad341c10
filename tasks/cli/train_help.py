"""The page of `xformer train --help`, with the choices of each group from the registries and the
YAML files.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tasks import Facts
from xformer_kit.config import GROUPS, compose, conf_dir
from xformer_kit.config.hydra.hydra_session import SWEEPS
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import OPTIONS
from xformer_kit.inspect.components import as_yaml, in_order, summary
from xformer_kit.registry import config_error, suggestion
from xformer_kit.text.command_lines import program, xformer

Choices = dict[str, dict[str, str]]  # group -> {choice: one line on it}

HEAD = """Train a transformer that is composed of components.

  xformer train [GROUP=CHOICE ...] [KEY=VALUE ...]
  xformer train -m KEY=VALUE,VALUE ...        one run for every combination
  xformer train resume=RUN                    resume a run
"""
TAIL = """
Instructions
  resume=RUN            a run's directory (outputs/NAME/TIME), or latest; it keeps its config,
                        except for trainer.max_steps=N, its new number of steps
  init_from=RUN         a new run from the weights of a run
  lora.rank=8           with init_from: train adapters of this rank, and no other weights
  callbacks.early_stopping.patience=5  end after 5 validations without a better val/loss
  trainer.sample=false  no text of the model at the validations and at the end
  components=[FILE, ...]  Python files with components of your own, which are then choices
  hydra.run.dir=DIR     where the run is written
  -m, --multirun        run every combination of the values that are separated by commas
  --cfg job             print the config, and run nothing
  --help                this page; --help attn: that part of it

Examples
  xformer train attn.heads=4 attn.kv_heads=2 position=alibi norm=layer placement=post
  xformer train data=text data.path=book.txt tokenizer=bpe tokenizer.vocab_size=2000
  xformer train mask=sliding_window mask.window=64 ffn=mlp ffn.width=512
  xformer train -m attn.heads=2,4,8 trainer.max_steps=500
  xformer train components=[my_components.py] attn=mine attn.knob=3
  xformer train debug=overfit logger=none

Look things up
  xformer components attn                            every option of a kind of component
  xformer describe attn.heads=4 model.layers=12     what a model costs, before it is built
"""


def train_help(words: Sequence[str] = (), width: int | None = None) -> str:
    """Returns the page of `xformer train --help`; with words such as attn or model, the choices and
    values of these groups. Lists are cut at `width` columns, by default those of the terminal.
    Raises ConfigError for a word without choices and values.
    """
    width = width or shutil.get_terminal_size((120, 24)).columns
    config = compose(data=False)  # the default run
    choices, values = _choices(), dict(_values(config))
    if words:
        return _part(choices, values, [re.split(r"[.=]", word)[0] for word in words], config, width)
    lines = [HEAD, "Groups and their choices (* is the default)"]
    lines += _choice_lines(choices, config, width)
    lines += ["", "Values that most runs set (--cfg job prints all)"]
    lines += _value_lines(values, width)
    page = "\n".join(lines) + "\n" + TAIL
    return page.replace("xformer train", program())


def _part(
    choices: Choices, values: Mapping[str, str], groups: Sequence[str], config: Facts, width: int
) -> str:
    """Returns the lines of some groups."""
    nodes = [value.rpartition(".")[0] for value in values]
    if unknown := [group for group in groups if group not in (*choices, *nodes)]:
        rule, fix = "no group has this name", suggestion(unknown[0], choices)
        raise config_error("--help", rule, unknown[0], fix)
    shown = {group: choices[group] for group in groups if group in choices}
    lines = [*_choice_lines(shown, config, width)] if shown else []
    of_nodes = {v: text for v, text in values.items() if v.rpartition(".")[0] in groups}
    lines += [*_value_lines(of_nodes, width)] if of_nodes else []
    more = [xformer("components", group) for group in shown if group in GROUPS]
    lines += [f"\nTheir options: {' and '.join(more)}"] if more else []
    return "\n".join(lines) + "\n"


def _choice_lines(choices: Choices, config: Facts, width: int) -> Iterator[str]:
    defaults = _default_choices() | {group: config[group]["name"] for group in GROUPS}
    name_width = max(map(len, choices))
    for group in choices:
        choice_width = max(map(len, choices[group])) + 1
        for i, (name, text) in enumerate(choices[group].items()):
            mark = "*" if defaults.get(group) == name else " "
            label = f"{'' if i else group:{name_width}}"
            yield _cut(f"  {label}  {mark}{name:{choice_width}} {text}", width)


def _value_lines(values: Mapping[str, str], width: int) -> Iterator[str]:
    value_width = max(map(len, values))
    return (_cut(f"  {value:{value_width}}  {text}", width) for value, text in values.items())


def _cut(line: str, width: int) -> str:
    return line.rstrip() if len(line) <= width else line[: width - 3].rstrip() + "..."


def _choices() -> Choices:
    """Returns the choices of all groups: registered components, then YAML files."""
    found: Choices = {
        group: {name: summary(registry[name]) for name in in_order(registry)}
        for group, registry in GROUPS.items()
    }
    conf = Path(conf_dir())
    for path in sorted(conf.glob("*/**/*.yaml"), key=lambda path: (len(path.parts), path)):
        group, *name = path.relative_to(conf).with_suffix("").parts
        if group != SWEEPS:
            found.setdefault(group, {}).setdefault("/".join(name), _first_comment(path))
    return found


def _first_comment(path: Path) -> str:
    """Returns the first comment of a YAML file that is not an instruction to Hydra."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").rstrip(". ")
    return ""


def _default_choices() -> dict[str, str]:
    """Returns {group: choice} of the defaults list of conf/train.yaml."""
    import yaml

    train = yaml.safe_load(Path(conf_dir(), "train.yaml").read_text(encoding="utf-8"))
    return {
        group: choice
        for entry in train["defaults"]
        if isinstance(entry, Mapping)
        for group, choice in entry.items()
        if not group.startswith("override")
    }


def _values(config: Facts) -> Iterator[tuple[str, str]]:
    """Yields (key=default, meaning) of the settings that are not components: of the run, the model,
    the data and the trainer.
    """
    for node in ("run", "model", "data"):
        prefix, values = ("", config) if node == "run" else (f"{node}.", config[node])
        for key, option in SETTINGS.options(node).items():
            if key not in ("decoder", "encoder"):
                yield f"{prefix}{key}={as_yaml(values[key])}", option.meaning
    for key, value in config["trainer"].items():
        yield f"trainer.{key}={as_yaml(value)}", OPTIONS[key].meaning
