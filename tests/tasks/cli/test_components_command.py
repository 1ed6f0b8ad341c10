"""xformer --help, components and check, also with components of a user's file."""

import json
import re
import subprocess
import sys

import pytest

from tasks.cli import COMMANDS
from tasks.cli.command import format_bytes, format_count
from tests.tasks.command_lines import TINY, output
from tests.user_components import forget_user_components
from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS

MINE = '''
from xformer_kit.attention import ATTENTIONS, HeadShape, MultiHead

@ATTENTIONS.register("mine", also_called=("my_own",))
class Mine(MultiHead):
    """softmax(knob * q k^T) v: with larger scores."""

    def __init__(
        self, dim: int, norm, kernel, *, heads: int = 4,
        knob: int = 1,  # factor on the scores
    ):
        super().__init__(dim, norm, kernel, shape=HeadShape(heads))
        self.scale *= knob
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_components.py"
    path.write_text(MINE)
    yield str(path)
    forget_user_components()


@pytest.fixture
def own_file(tmp_path):
    yield tmp_path / "my_components.py"
    forget_user_components((*GROUPS.values(), *MAPPING_GROUPS.values()))


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


HELP = """
import sys
from tasks.cli import COMMANDS, main

for words in ([], ["--help"], *([name, "--help"] for name in COMMANDS if name != "train")):
    try:
        main(words)
    except SystemExit as ended:
        assert not ended.code, words
    assert "torch" not in sys.modules and "lightning" not in sys.modules, words
"""


def test_help_imports_no_torch():
    result = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    pages = result.stdout.split("usage: ")[1:]
    assert len(pages) == len(COMMANDS) + 1
    assert all("examples:" in page for page in pages[2:])


def test_components_lists_every_component(capsys, wide):
    _, out, _ = output(capsys, "components")
    for registry in GROUPS.values():
        for name in registry:
            assert f" {name} " in out
    assert "softmax(mask(q k^T * scale)) v in each head" in out


def test_components_of_a_kind_lists_options_papers_and_synonyms(capsys, wide):
    _, out, _ = output(capsys, "components", "attn")
    assert "arXiv:1706.03762" in out
    assert "also called mha, gqa (with kv_heads set), mqa (kv_heads=1)" in out
    row = next(line for line in out.splitlines() if "attn.kv_heads" in line)
    assert (
        " ".join(row.split())
        == "attn.kv_heads int | null null key and value heads, such as 2; null is heads"
    )


def test_components_as_json(capsys):
    code, out, _ = output(capsys, "components", "--json")
    table = json.loads(out)
    assert code == 0
    assert {kind: set(components) for kind, components in table.items()} == {
        group: set(registry)
        for group, registry in (GROUPS | NESTED_GROUPS | MAPPING_GROUPS).items()
    }
    assert table["ffn"]["mlp"]["multiple_of"] == {"type": "int | null", "default": None}
    assert list(json.loads(output(capsys, "components", "ffn", "glu", "--json")[1])["ffn"]) == [
        "glu"
    ]


def test_components_are_listed_by_their_command_line_names(capsys, wide):
    shown = [
        line.split()[0] for line in output(capsys, "components")[1].splitlines() if line[:1].strip()
    ]
    assert [word for word in shown if word not in ("The", "To")] == [
        *GROUPS,
        *NESTED_GROUPS,
        *MAPPING_GROUPS,
    ]
    assert {"task", "data", "attn.score", "position.scaling", "ffn.router", "ffn.expert"} <= set(
        shown
    )
    assert "position.scaling.factor" in output(capsys, "components", "position.scaling", "yarn")[1]


@pytest.mark.parametrize(
    "words", [["task"], ["objective"], ["task", "language_modeling"], ["task.language_modeling"]]
)
def test_a_kind_is_found_by_both_of_its_names(capsys, words):
    assert "task=language_modeling" in output(capsys, "components", *words)[1]


def test_components_and_describe_with_a_component_of_a_users_file(capsys, mine, wide):
    code, out, _ = output(capsys, "components", "attn", "mine", "--components", mine)
    assert code == 0
    assert "attn.knob" in out
    assert "factor on the scores" in out
    code, out, _ = output(
        capsys, "describe", "attn=mine", "--components", mine, "attn.knob=3", *TINY[:2]
    )
    assert code == 0
    assert "mine knob=3, 4 heads of 8" in out


@pytest.mark.extended
def test_check_finds_the_law_that_a_component_breaks(capsys, mine, tmp_path, wide):
    code, out, _ = output(capsys, "check", mine)
    assert (code, "0 broken" in out) == (0, True)
    broken = tmp_path / "broken.py"
    broken.write_text(
        MINE.replace('"mine"', '"leaky"').replace("my_own", "drip")
        + """
    def forward(self, x, source, context, cache=None):
        return super().forward(x, source, context, cache) + x.mean(1, keepdim=True)
"""
    )
    code, out, _ = output(capsys, "check", str(broken))
    assert code == 1
    assert " broken " in out
    assert "causality" in out


def test_check_of_a_component_that_cannot_be_registered_is_an_error_of_the_file(
    capsys, tmp_path, wide
):
    """Exit code 2, as for any other invalid input; 1 is for a broken law."""
    file = tmp_path / "my_components.py"
    file.write_text(MINE.replace("knob: int = 1", "knob=1"))
    code, out, _ = output(capsys, "check", str(file))
    assert code == 2
    assert "option knob has no type" in out


def test_check_without_a_law_that_was_checked_is_no_success(capsys, own_file, wide):
    own_file.write_text(
        '''
from lightning.pytorch import Callback

from xformer_kit.config.options.callbacks import CALLBACKS


@CALLBACKS.register("mine")
class Mine(Callback):
    """Nothing."""
'''
    )
    code, out, _ = output(capsys, "check", str(own_file))
    assert code == 1
    assert out.endswith("No law was checked for callbacks mine: nothing is known of it.\n")


@pytest.fixture
def few_laws(monkeypatch):
    """Only one law is checked, which is skipped without a source."""
    from xformer_kit.laws import LAWS, checking

    monkeypatch.setattr(checking, "LAWS", {"source": LAWS["source"]})


ONLY_DECODER = (
    MINE
    + """
    @classmethod
    def cannot(cls, options, context):
        from xformer_kit.registry import Fault

        if context.has_source:
            yield Fault("", "has no source")
"""
)


def test_check_lists_the_compositions_and_says_if_all_laws_were_skipped(
    capsys, own_file, wide, few_laws
):
    own_file.write_text(ONLY_DECODER)
    code, out, _ = output(capsys, "check", str(own_file))
    assert code == 1
    assert out.startswith("attn mine\nIn models of model.dim=")
    assert re.search(r"\n *1  tried    \S.*\battn=mine", out)
    assert re.search(r"\n *7  refused  model=encoder_decoder [^@]*: has no source\.", out)
    assert "source  skipped  no source." in out
    assert out.endswith("No law was checked for attn mine: nothing is known of it.\n")
    code, out, _ = output(capsys, "check", str(own_file), "--details")
    assert re.search(r"\n *1  tried    model\.dim=\d+ model\.layers=2 ", out)
    code, out, _ = output(capsys, "check", str(own_file), "--json")
    [check] = json.loads(out)
    assert check["component"] == "attn mine"
    assert [bool(one["refused"]) for one in check["compositions"]] == [False] * 6 + [True]
    assert check["laws"] == [{"law": "source", "verdict": "skipped", "sentence": "no source."}]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (987, "987"),
        (1_000, "1.00 K"),
        (12_345, "12.3 K"),
        (999_600, "1.00 M"),
        (4_560_000_000, "4.56 G"),
    ],
)
def test_numbers_with_units(number, text):
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(512, "512 B"), (1536, "1.50 KiB"), (604 * 2**20, "604 MiB")]
)
def test_bytes_with_units(number, text):
    assert format_bytes(number) == text
