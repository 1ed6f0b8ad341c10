"""What commands print with --json has the keys and types of docs/guide/programs.md."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tasks.study import tries
from tests.tasks.command_lines import TINY, output
from tests.tasks.conftest import STUDY

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "programs.md"
ROW = re.compile(r"^\| (\w+) \| `(\S+)` \| (.+?) \| .+ \|$", re.MULTILINE)
LIKE = re.compile(r"like `(\w+) ?(\S*)`")
TYPES = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}
TYPES |= {list: "list", dict: "mapping"}


@pytest.fixture(scope="module")
def rows():
    """{command: {key: type}}"""
    found = {}
    for command, key, kind in ROW.findall(PAGE.read_text(encoding="utf-8")):
        assert key not in found.setdefault(command, {})
        found[command][key] = kind
    return found


def differences(rows, value, command, path=""):
    """Yields where a value, or one inside it, is not as documented."""
    cell = rows[command].get(path, "")
    if value is None and "null" in cell:
        return
    if like := LIKE.search(cell):
        yield from differences(rows, value, like[1], like[2])
        return
    documented = {*re.findall(r"\w+", cell)} & {*TYPES.values(), "any"}
    documented |= {"integer"} if "number" in documented else set()
    inside = children(rows[command], path)
    if documented and not documented & {TYPES[type(value)], "any"}:
        yield f"{path} is {TYPES[type(value)]}"
    elif isinstance(value, list) and "[]" in inside:
        for item in value:
            yield from differences(rows, item, command, f"{path}[]")
    elif isinstance(value, dict) and inside:
        yield from (
            f"{path}.{key} is missing" for key in inside if inside[key] and key not in value
        )
        for key, item in value.items():
            known = key if key in inside else "*"
            if known in inside:
                yield from differences(rows, item, command, f"{path}.{known}".lstrip("."))
            else:
                yield f"{path}.{key} is not documented"
    elif not documented:
        yield f"{path} is not documented"


def children(keys, path):
    """{key in the mapping at a path, or [] of a list: whether it is always there}."""
    found = {}
    prefix = re.compile(
        re.escape(path) + (r"(\.|(?=\[))" if path else "()") + r"(\[\]|[^.\[]+)(.*)"
    )
    for key, kind in keys.items():
        if match := prefix.fullmatch(key):
            is_optional = match[2] == "*" or ("optional" in kind and match[3] in ("", "[]"))
            found[match[2]] = found.get(match[2], True) and not is_optional
    return found


def test_a_difference_from_the_table_is_found():
    keys = {"a": "integer", "b[].c": "number or null", "b[].d": "text, optional", "e.*": "any"}
    rows = {"x": keys, "y": {"[]": "like `x`", "[].f": "text"}}
    right = {"a": 1, "b": [{"c": 2, "d": ""}, {"c": None}], "e": {"g": [], "h": 1}}
    assert [*differences(rows, right, "x")] == [*differences(rows, [right], "y")] == []
    wrong = right | {"a": True, "b": [{"c": "2", "i": 1}, {}]}
    assert [*differences(rows, wrong, "x")] == [
        "a is boolean",
        "b[].c is text",
        "b[].i is not documented",
        "b[].c is missing",
    ]


def printed(capsys, *words, code=0):
    found, out, err = output(capsys, *words, "--json")
    assert (found, err) == (code, "")
    return json.loads(out)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "line",
    [
        ["components", "attn"],
        ["describe", *TINY, "--parameters"],
        ["diff", " ".join([*TINY, "norm=layer", "mask=sliding_window"]), " ".join(TINY)],
        ["explain", *TINY, "model.vocab_size=100", "mask=sliding_window"],
        ["judge", "results.csv"],
    ],
    ids=lambda line: line[0],
)
def test_commands_without_a_run(rows, tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    text = "variant,seed,val_loss\na,0,1.0\na,1,1.1\nb,0,0.8\nb,1,0.95\nb,2,nan\n"
    Path("results.csv").write_text(text)
    data = printed(capsys, *line)
    assert data and [*differences(rows, data, line[0])] == []


@pytest.mark.extended
def test_commands_on_runs(rows, study_home, tmp_path, monkeypatch, capsys):
    """The runs of a try are those of the study."""
    monkeypatch.chdir(shutil.copytree(study_home, tmp_path / "home"))
    study, runs = "outputs/studies/norm_placement", sorted(Path("outputs/runs").iterdir())
    monkeypatch.setattr(
        tries,
        "_train",
        lambda tried, file, pairs: shutil.copytree(study, tried.folder, dirs_exist_ok=True),
    )
    base = " ".join(word for word in STUDY if "study" not in word)
    line = ["try", "placement=post", "--base", f"{base} data.path=text.txt schedule.warmup=0"]
    for words, code in (
        (["evaluate", runs[0]], 0),
        (["evaluate", runs[0], "--input", "text.txt"], 0),
        (["compare", *runs], 0),
        (["status", "norm_placement"], 0),
        ([*line, "--pairs", "2"], 11),
        (["tries"], 0),
    ):
        data = printed(capsys, *words, code=code)
        assert data and [*differences(rows, data, words[0])] == [], words
