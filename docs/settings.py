"""Pages of what is no component: the settings of a config, the command line, the configs
themselves, the laws, the findings.
"""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs import markup
from docs.component import config_place
from docs.typeset import code, typeset
from docs.uses import CONF, configs, key
from xformer_kit.config.settings import SETTINGS
from xformer_kit.config.trainer_schema import LIGHTNING, OURS
from xformer_kit.inspect.components import doc, written
from xformer_kit.laws import LAWS
from xformer_kit.laws.registry import UNDER
from xformer_kit.registry import Option, type_name
from xformer_kit.study import study_node

PLACES = {
    "run": "",
    "stack": "model.decoder.",
}  # settings -> what stands in front of their keys, where it is not their name


def settings(registry: Any, name: str, place: str) -> str:
    """A table of keys that a config has."""
    return options({f"{place}{key}": option for key, option in registry.options(name).items()})


def options(found: Mapping[str, Option]) -> str:
    rows = [
        (
            code(key),
            markup.text(type_name(o.type)),
            code(written(o.default) or "''"),
            typeset(o.meaning, _nowhere),
        )
        for key, o in found.items()
    ]
    return markup.table(("key", "type", "default", "meaning, unit"), rows, "options")


def configuration() -> str:
    blocks = [
        (
            "A config is composed by Hydra from `conf/`: a choice for every kind of"
            " [component](components/index.md), and the settings below. `python train.py --help`"
            " lists the choices; `key=value` on the command line overrides any of them."
        ),
        "## Settings",
    ]
    for name in SETTINGS:
        blocks += [f"### {name}", markup.paragraph(typeset(doc(SETTINGS[name]), _nowhere))]
        blocks.append(settings(SETTINGS, name, PLACES.get(name, f"{name}.")))
    blocks += [
        "### trainer",
        "Keys of its own:",
        options({f"trainer.{key}": o for key, o in OURS.items()}),
    ]
    blocks += [
        "Those of `lightning.Trainer`:",
        options({f"trainer.{key}": o for key, o in LIGHTNING.items()}),
    ]
    return markup.page("Configuration", *blocks)


def command_line() -> str:
    """The help of every command, as it prints it."""
    from tasks.cli import COMMANDS, main

    blocks = ["`xformer` looks at components, models, runs and studies; `python train.py` trains."]
    for name, module in COMMANDS.items():
        blocks += [
            f"## xformer {name}",
            module.SUMMARY[:1].upper() + module.SUMMARY[1:] + ".",
            _fenced(_help(main, name)),
        ]
    return markup.page("Command line", *blocks)


def _help(main: Any, name: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return shown.getvalue().rstrip()


def config_pages() -> Iterator[tuple[str, str]]:
    """(page, Markdown) for each folder of conf, with its files as they are."""
    pages: dict[str, list[Path]] = {}
    for path in configs():
        pages.setdefault(config_place(key(path)).partition(".")[0], []).append(path)
    for page, paths in pages.items():
        blocks = []
        for path in paths:
            place = config_place(key(path)).partition("#")[2]
            source = path.read_text(encoding="utf-8").rstrip()
            blocks += [f"({place})=\n## conf/{key(path)}.yaml", _fenced(source, "yaml")]
        folder = str(paths[0].parent.relative_to(CONF.parent))
        yield page, markup.page(folder, *blocks)
    yield (
        "configs/index",
        markup.page(
            "Configs",
            "The YAML that comes with xformer_kit, as it is.",
            markup.toctree([p.removeprefix("configs/") for p in pages], False),
        ),
    )


def _fenced(text: str, language: str = "text") -> str:
    return f"~~~{language}\n{text}\n~~~"


def laws() -> str:
    """Every law, what it says, and which fall with it."""
    blocks = [
        "Properties that every component keeps, by itself and with every other; or its page states"
        " which law its mathematics breaks and why, and a composition that needs that law is"
        " refused. `xformer check my_components.py` runs them on components of your own."
    ]
    for name, law in LAWS.items():
        blocks += [f"## {name}", markup.paragraph(typeset(" ".join(doc(law).split()), _nowhere))]
        blocks += [f"Falls with: {', '.join(UNDER[name])}."] if UNDER[name] else []
    return markup.page("Laws", *blocks)


def findings() -> str:
    """The published claims that come as studies."""
    folder = CONF / "study" / "findings"
    small = {path.name for path in configs() if path.parent == folder}
    rows = []
    for path in configs():
        if path.parent == folder or (path.parent == folder / "gpu" and path.name not in small):
            node = yaml.safe_load(path.read_text(encoding="utf-8"))
            rows.append(_finding(key(path), _whole(node)))
    head = ("study", "expected", "outcome", "paper", "runs")
    return markup.page(
        "Findings",
        "Published claims as studies that two CPU cores can run, each with a `gpu` size of its"
        " own, and what wants a GPU; `python train.py study=findings/qk_norm` runs one and writes"
        " its report, which says whether the claim held. The outcome is that on two CPU cores;"
        " benchmarks/results/findings.json has the sentences and the versions.",
        markup.table(head, rows, "findings"),
    )


def _whole(node: Mapping[str, Any]) -> dict[str, Any]:
    """The study's node over that of the study that it starts from."""
    found: dict[str, Any] = {}
    for entry in node.get("defaults", ()):
        if isinstance(entry, str) and entry.startswith("/study/"):
            found = _whole(
                yaml.safe_load((CONF / f"{entry.strip('/')}.yaml").read_text(encoding="utf-8"))
            )
    return found | node["study"]


def _finding(name: str, study: Mapping[str, Any]) -> tuple[str, ...]:
    node = study_node.complete(study, name)
    _, variants = study_node.levels_of(node)
    expect = node["claim"]["expect"]
    ways = {"equal": "equal to", "no_worse": "no worse than"}
    expected = "<br>".join(
        markup.text(
            f"{one['variant']} is {ways.get(one['is'], one['is'] + ' than')}"
            f" {one.get('than', 'baseline')}"
        )
        for one in (expect if isinstance(expect, list) else [expect])
    )
    seeds = node["seeds"] if isinstance(node["seeds"], int) else len(node["seeds"])
    tuned = 1
    for values in (node["tune"] or {}).values():
        tuned *= len(values)
    runs = f"{len(variants)} variants x {seeds} seeds" + (
        f" x {tuned} settings" if tuned > 1 else ""
    )
    link = markup.link(code(name.removeprefix("study/findings/")), config_place(name))
    return (
        f"{link}<br>{markup.text(node['question'])}",
        expected,
        _outcome(name),
        typeset(node["claim"]["paper"], _nowhere),
        f"{runs}, {code(node['metric'])}",
    )


def _outcome(name: str) -> str:
    """held, not held or not decided, with the day; of one that was not run, that."""
    kept = json.loads(
        (CONF.parent / "benchmarks" / "results" / "findings.json").read_text(encoding="utf-8")
    )["figures"]
    found = kept.get(name.removeprefix("study/findings/"))
    return f"{found['outcome']} ({found['time'][:10]})" if found else "not run yet"


def studies() -> str:
    return markup.page(
        "Study settings",
        "Keys of `study` in YAML and on the command line, see [studies](guide/studies.md).",
        settings(study_node.SETTINGS, "study", "study."),
        "Its budget:",
        settings(study_node.SETTINGS, "budget", "study.budget."),
        "Its designs are [components](components/study.design/index.md); published claims among"
        " studies are [findings](findings.md).",
    )


def _nowhere(word: str) -> None:
    return None
