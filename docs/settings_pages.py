"""Pages of settings, commands, configs, laws, studies and findings."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.finding_pages import expected
from docs import markup
from docs.component_page import config_place
from docs.config_uses import CONF, configs, key
from docs.typeset import code, typeset
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import LIGHTNING, OURS
from xformer_kit.inspect.components import as_yaml, doc
from xformer_kit.laws import LAWS, explanation
from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.laws.registry import PREREQUISITES
from xformer_kit.registry import Option, type_name
from xformer_kit.study import study_node

# Settings -> prefix of their keys, if it is not their name.
PREFIXES = {"run": "", "stack": "model.decoder."}


def settings(registry: Any, name: str, prefix: str) -> str:
    """Returns the table of the options of some settings, with a prefix before each key."""
    return options({f"{prefix}{key}": option for key, option in registry.options(name).items()})


def options(found: Mapping[str, Option]) -> str:
    """Returns the table of options: type, default, meaning."""
    rows = [
        (
            code(key),
            markup.text(type_name(o.type)),
            code(as_yaml(o.default) or "''"),
            typeset(o.meaning, _no_link),
        )
        for key, o in found.items()
    ]
    return markup.table(("key", "type", "default", "meaning, unit"), rows, "options")


def configuration() -> str:
    """Returns the page of all settings of a config."""
    blocks = [
        (
            "Hydra composes a config from `conf/`: one [component](components/index.md) of each"
            " kind, and the settings below. `python train.py --help` lists the choices;"
            " `key=value` on the command line overrides any of them."
        ),
        "## Settings",
    ]
    for name in SETTINGS:
        blocks += [f"### {name}", markup.paragraph(typeset(doc(SETTINGS[name]), _no_link))]
        blocks.append(settings(SETTINGS, name, PREFIXES.get(name, f"{name}.")))
    blocks += [
        "### trainer",
        "Options of xformer_kit:",
        options({f"trainer.{key}": o for key, o in OURS.items()}),
    ]
    blocks += [
        "Options of `lightning.Trainer`:",
        options({f"trainer.{key}": o for key, o in LIGHTNING.items()}),
    ]
    return markup.page("Configuration", *blocks)


def command_line() -> str:
    """Returns the page with the help text of each command."""
    from tasks.cli import COMMANDS, main

    blocks = ["`python train.py` trains; `xformer` inspects components, models, runs and studies."]
    for name, module in COMMANDS.items():
        blocks += [
            f"## xformer {name}",
            module.SUMMARY[:1].upper() + module.SUMMARY[1:] + ".",
            _fenced(_help(main, name)),
        ]
    return markup.page("Command line", *blocks)


def _help(main: Any, name: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return output.getvalue().rstrip()


def config_pages() -> Iterator[tuple[str, str]]:
    """Yields (page, Markdown) of each folder of conf, with the text of its files."""
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
            "The YAML files of xformer_kit.",
            markup.toctree([p.removeprefix("configs/") for p in pages], False),
        ),
    )


def _fenced(text: str, language: str = "text") -> str:
    return f"~~~{language}\n{text}\n~~~"


def laws() -> str:
    """Returns the page of the laws: what each checks, how it fails, what to do, and the laws that
    it depends on; then those of the kinds that are not part of a model.
    """
    blocks = [
        "A law is a property that each component satisfies, individually and in pairs. If the"
        " mathematics of a component breaks a law, its page states which and why, and a composition"
        " that needs the law is refused. `xformer check my_components.py` runs the laws on your"
        " components."
    ]
    for name, law in LAWS.items():
        blocks += [f"## {name}", *_explained(law)]
        blocks += (
            [f"Broken if one of these is broken: {', '.join(PREREQUISITES[name])}."]
            if PREREQUISITES[name]
            else []
        )
    for kind, of_kind in KIND_LAWS.items():
        blocks.append(f"## Laws of {kind}")
        for name, law_of_kind in of_kind.items():
            blocks += [f"### {kind}: {name}", *_explained(law_of_kind)]
    return markup.page("Laws", *blocks)


def _explained(law: Callable[..., Any]) -> list[str]:
    """Returns what a law checks, an example of how it fails, and what to do."""
    rule, example, fix = explanation(law)
    return [
        markup.paragraph(typeset(rule, _no_link)),
        f"Fails, for example, with:\n\n{_fenced(example)}",
        markup.paragraph(f"What to do: {typeset(fix[:1].lower() + fix[1:], _no_link)}"),
    ]


def findings() -> str:
    """Returns the page of published claims that have a study."""
    folder = CONF / "study" / "findings"
    small = {path.name for path in configs() if path.parent == folder}
    rows = []
    for path in configs():
        if path.parent == folder or (path.parent == folder / "gpu" and path.name not in small):
            node = yaml.safe_load(path.read_text(encoding="utf-8"))
            rows.append(_finding(key(path), _with_base(node)))
    head = ("study", "expected", "outcome", "paper", "runs")
    return markup.page(
        "Findings",
        "Published claims as studies that run on two CPU cores, each also in a `gpu` size, and"
        " studies that need a GPU. `python train.py study=findings/qk_norm` runs one and writes its"
        " report with the outcome of the claim. Outcomes below are those on two CPU cores;"
        " benchmarks/results/findings.json has the details and the versions.",
        markup.table(head, rows, "findings"),
    )


def _with_base(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the study's node merged into the node of its base study."""
    found: dict[str, Any] = {}
    for entry in node.get("defaults", ()):
        if isinstance(entry, str) and entry.startswith("/study/"):
            found = _with_base(
                yaml.safe_load((CONF / f"{entry.strip('/')}.yaml").read_text(encoding="utf-8"))
            )
    return found | node["study"]


def _finding(name: str, study: Mapping[str, Any]) -> tuple[str, ...]:
    node = study_node.complete(study, name)
    _, variants = study_node.levels_of(node)
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
        "<br>".join(markup.text(one) for one in expected(node["claim"]).split("; ")),
        _outcome(name),
        typeset(node["claim"]["paper"], _no_link),
        f"{runs}, {code(node['metric'])}",
    )


def _outcome(name: str) -> str:
    """Returns held, not held or inconclusive, with the date; or that it was not run."""
    results = json.loads(
        (CONF.parent / "benchmarks" / "results" / "findings.json").read_text(encoding="utf-8")
    )["figures"]
    found = results.get(name.removeprefix("study/findings/"))
    if not found:
        return "not run yet"
    page = f"findings/{name.removeprefix('study/findings/')}.html"
    return markup.link(f"{found['outcome']} ({found['time'][:10]})", page)


def studies() -> str:
    """Returns the page of the settings of a study."""
    return markup.page(
        "Study settings",
        "Keys of `study` in YAML and on the command line, see [studies](guide/studies.md).",
        settings(study_node.SETTINGS, "study", "study."),
        "The budget:",
        settings(study_node.SETTINGS, "budget", "study.budget."),
        "Designs are [components](components/study.design/index.md); studies of published claims"
        " are on the page of [findings](findings.md).",
    )


def _no_link(word: str) -> None:
    return None
