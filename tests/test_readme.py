"""README.md and the guides are up to date: tables of components, command lines, the example of a
component.
"""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from tasks.cli import COMMANDS
from tasks.cli.parser import Parser, add_options
from tests.messages import messages
from tests.refusals import refused
from xformer_kit import ConfigError, build, compose
from xformer_kit.config import GROUPS, preflight
from xformer_kit.inspect.table import TABLES, refreshed
from xformer_kit.study import study_node
from xformer_kit.study.plan import variants

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "AGENTS.md", "docs/getting_started.md", "docs/index.md", "docs/python.md"]
PAGES += [f"docs/guide/{path.name}" for path in sorted((ROOT / "docs" / "guide").glob("*.md"))]
TABLES_OF_LINES = "docs/guide/from_other_libraries.md"
# commands that need files of the reader, or that are refused on purpose
SKIPPED = "resume=|init_from=|tokenizer.path=|components=|heads=7|task=(classification|regression)|"
SKIPPED += "data.columns=|data=parquet|data=hub|glob|recipe.yaml|--cfg"
# file of the reader -> its content
FILES = {"corpus/part.txt": "a text\n", "pairs.tsv": "a\tb\n"}
FILES |= dict.fromkeys(("book.txt", "input.txt", "custom_texts/a.txt"), "a text\n")
FILES |= {"reviews.csv": "review\na text\n"}
FILES |= dict.fromkeys(("documents.jsonl", "held_out.jsonl"), '{"text": "a text"}\n')


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/getting_started.md"])
def test_the_refused_command_has_the_printed_answer(name):
    """A line of the answer that ends with ... is the beginning of one."""
    found = re.search(r"\$ python train.py (.*heads=7.*)\n((?: {4}.*\n)+)", read(name))
    faults = refused(found[1])
    printed = [line.strip() for line in found[2].splitlines()]
    assert len(printed) == len(faults)
    for line, fault in zip(printed, faults, strict=True):
        assert fault.startswith(line.removesuffix("...")) if line.endswith("...") else fault == line


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_components_are_those_of_the_registries(name):
    assert refreshed(name, read(name)) == read(name), "run: python -m xformer_kit.inspect.table"


def test_the_readme_has_at_most_150_lines():
    assert read("README.md").count("\n") <= 150


def test_the_share_of_pairs_that_train_is_that_of_the_page_of_refusals():
    share = re.search(r"\((\d+\.\d)%\) train", read("docs/refusals.md"))[1]
    assert f"{float(share):.0f} % of the pairs train" in read("README.md")


def test_the_places_of_agents_md_are_files():
    cells = re.findall(r"^\| (`.*?) \|", read("AGENTS.md"), re.MULTILINE)
    places = re.findall(r"`(.*?)`", " ".join(cells))
    roots = ROOT, ROOT / "xformer_kit"
    assert len(places) > 10
    assert [name for name in places if not any((root / name).exists() for root in roots)] == []


def test_links_and_pictures_of_the_readme_are_files():
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", read("README.md"))
    assert targets
    assert [name for name in targets if "://" not in name and not (ROOT / name).exists()] == []


def commands(program: str) -> list[str]:
    """Returns the lines of code of all pages that call a program, without comments; once each."""
    found = [
        line.split("  #")[0].strip()
        for page in PAGES
        for line in re.findall(
            rf"^    (?:\$ )?{program} (.*)$",
            re.sub(r" \\\n +", " ", read(page)),  # a line that goes on
            flags=re.MULTILINE,
        )
    ]
    in_tables = "\n".join(re.findall(r"^\|.*\|$", read(TABLES_OF_LINES), re.MULTILINE))
    found += re.findall(rf"`{program} ([^`]+)`", in_tables)
    return list(dict.fromkeys(found))


@pytest.mark.extended
def test_the_commands_compose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for page in PAGES:
        files = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", read(page), re.DOTALL)
        for name, text in files:
            (tmp_path / Path(name).name).write_text(text)
    lines = [c for c in commands("python train.py") if not re.search(SKIPPED, c)]
    assert {line: found for line in lines if (found := faults_of(line))} == {}


def faults_of(line: str) -> list[str]:
    """Returns the messages with which `python train.py line` is refused."""
    words = [word for word in shlex.split(line) if word not in ("-m", "--help")]
    try:
        if any(word.startswith("study=") for word in words):
            command_line = preflight(words)
            study = command_line.study
            if found := messages(study_node.faults(study)):
                return found
            variants(study_node.complete(study, study["name"]), command_line.compose)
        else:
            words = [word for word in words if not word.startswith("hydra")]
            compose([word.split(",")[0] if "-m" in line else word for word in words])
    except ConfigError as error:
        return list(error.messages)
    return []


def test_the_first_table_counts_the_lines_of_the_others():
    first, *others = read(TABLES_OF_LINES).split("\n## ")
    counts = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$", first, re.MULTILINE)
    assert len(counts) == len(others) == 3
    for (shown, here, missing), part in zip(counts, others, strict=True):
        answers = re.findall(r"^\| .* \| (.*) \|$", part, re.MULTILINE)[2:]
        refused = [answer for answer in answers if re.match(r"no\b", answer)]
        assert (int(shown), int(missing)) == (len(answers), len(refused))
        assert int(here) == int(shown) - int(missing)


def test_the_commands_have_these_options():
    wrong = {}
    for line in commands("xformer"):
        command, *words = shlex.split(line)
        parser = Parser(prog="xformer", exit_on_error=False)
        add_options(parser, {**COMMANDS[command].OPTIONS, "--components* FILE": ""})
        try:
            parser.parse_args(words)
        except (argparse.ArgumentError, SystemExit) as error:
            wrong[line] = str(error)
    assert wrong == {}


def test_the_component_of_the_guide_works(tmp_path):
    page = read("docs/guide/components.md")
    source = re.search(r"```python\n# my_components.py\n(.*?)```", page, flags=re.DOTALL).group(1)
    file = tmp_path / "my_components.py"
    file.write_text(source)
    words = [f"components=[{file}]", "attn=mine", "attn.knob=3", "model.layers=1"]
    try:
        assert build(compose(words), vocab_size=5).decoder.blocks[0].attn.knob == 3
    finally:
        GROUPS["attn"].forget(GROUPS["attn"].get("mine").__module__)
