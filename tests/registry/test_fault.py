"""Faults are values that are formatted once, and no code reads the text of one."""

import ast
import copy
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from xformer_kit.registry import ConfigError, Fault, Unused, config_error

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("xformer_kit/**/*.py"), *ROOT.glob("tasks/**/*.py")]
READING = {"startswith", "endswith", "partition", "rpartition", "split", "replace", "find"}
READING |= {"removeprefix", "removesuffix", "match", "search", "fullmatch", "sub", "findall"}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("a.b", "must be at least 1"), "a.b: must be at least 1."),
        (Fault("a.b", "must be at least 1", got="0"), "a.b: must be at least 1; got 0."),
        (
            Fault("a.b", "must be at least 1", got="0", fix="Try 2."),
            "a.b: must be at least 1; got 0. Try 2.",
        ),
        (Fault("a", "is called 'b' here", fix="Choose b."), "a: is called 'b' here. Choose b."),
        (Fault("/x", "is no run", fix="Type: train.py"), "/x: is no run. Type: train.py"),
        (Fault("a", "Is a whole sentence."), "a: Is a whole sentence."),
        (Fault("", "must be at least 1"), "must be at least 1."),
    ],
)
def test_a_fault_is_one_line(fault, text):
    assert str(fault) == text
    assert ConfigError(fault).messages == (text,)


def test_a_component_gives_a_path_inside_its_node():
    inner = Fault("groups", "must divide ffn.experts")
    assert inner.at("router").at("ffn").path == "ffn.router.groups"
    assert Fault("", "cannot be").at("ffn").path == "ffn"
    assert isinstance(Unused("eps", "has no effect").at("attn"), Unused)


def test_with_fix_appends_to_a_fix():
    assert str(Fault("a", "is wrong").with_fix("[job 3]")) == "a: is wrong. [job 3]"
    assert str(Fault("a", "is wrong", fix="Try 2.").with_fix("[job 3]")).endswith("Try 2. [job 3]")


def test_a_fault_of_a_file_begins_with_its_name():
    assert Fault("a.b", "is wrong").under("/x").path == "/x: a.b"
    assert str(Fault("", "is wrong").under("/x")) == "/x: is wrong."
    assert isinstance(Unused("eps", "has no effect").under("/x"), Unused)


def test_an_error_holds_each_fault():
    error = ConfigError(Fault(path, "is wrong") for path in ("a", "/x"))
    assert [fault.path for fault in error.faults] == ["a", "/x"]
    assert str(error) == "a: is wrong.\n/x: is wrong."
    assert config_error(Path("/x"), "is wrong", 3, "Try 2.").messages == (
        "/x: is wrong; got 3. Try 2.",
    )


def test_a_config_error_can_be_pickled():
    error = ConfigError([Fault("a", "is wrong", 3), Unused("b", "has no effect")])
    assert pickle.loads(pickle.dumps(error)).faults == copy.copy(error).faults == error.faults
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("text", ["a: wrong.", ["a: wrong."], [Fault("a", "wrong"), "b"]])
def test_an_error_takes_no_text(text):
    with pytest.raises(TypeError, match=r"^ConfigError takes faults: Fault\(path"):
        ConfigError(text)


def found_in_files(search: Callable[[ast.AST], list[str]]) -> dict[str, list[str]]:
    """File -> what a search finds in it."""
    found = {str(file.relative_to(ROOT)): search(tree) for file, tree in trees().items()}
    return {file: nodes for file, nodes in found.items() if nodes}


@cache
def trees() -> dict[Path, ast.AST]:
    return {file: ast.parse(file.read_text()) for file in FILES}


def texts_raised(tree: ast.AST) -> list[str]:
    """Calls that make an error of texts."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("ConfigError", "config_error")
        and len(node.args + node.keywords) == 1
        and any(map(is_a_text, node.args))
    ]


def is_a_text(node: ast.AST) -> bool:
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(map(is_a_text, node.elts))
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return is_a_text(node.elt)
    if isinstance(node, ast.BinOp):
        return is_a_text(node.left) or is_a_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_no_code_makes_an_error_of_texts():
    assert found_in_files(texts_raised) == {}


@pytest.mark.parametrize(
    "code",
    [
        "ConfigError('a: is wrong.')",
        "ConfigError(f'{path}: {fault}')",
        "ConfigError('a: ' + why)",
        "ConfigError([fault, 'b'])",
        "ConfigError((f'{run}: {fault}' for fault in faults))",
        "config_error('a: is wrong.')",
    ],
)
def test_an_error_of_texts_is_found(code):
    assert texts_raised(ast.parse(code)) == [code]
    assert not texts_raised(ast.parse("ConfigError([fault.at('a')]), config_error('a', 'wrong')"))


def reads_a_message(node: ast.AST) -> bool:
    """Whether a call takes the text of a fault apart: `str(fault).partition(":")`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in READING:
        return False
    return any(is_a_message(component) for component in ast.walk(node))


def is_a_message(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "messages":
        return True
    text = isinstance(node, ast.Call) and ast.unparse(node.func) == "str"
    return text and any(ast.unparse(arg) in ("fault", "one_fault") for arg in node.args)


def messages_read(tree: ast.AST) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(tree) if reads_a_message(node)]


def test_no_code_reads_the_text_of_a_fault():
    assert found_in_files(messages_read) == {}


def test_reading_the_text_of_a_fault_is_found():
    assert messages_read(ast.parse("str(fault).partition(':')[0]")) == ["str(fault).partition(':')"]


# Code that still takes a text of a fault apart.
STILL = {"tasks/cli/generate.py", "xformer_kit/laws/sequence.py"}


def taken_apart(tree: ast.AST) -> list[str]:
    """Where the rule, the value or the fix of a fault is compared, or given to a function or a
    method that reads it.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            read = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            method = isinstance(node.func, ast.Attribute)
            read = [*node.args, *([node.func.value] if method else [])]
        else:
            continue
        found += [ast.unparse(node) for component in read if is_a_field(component)]
    return found


def is_a_field(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("rule", "got", "fix")
        and isinstance(node.value, ast.Name)
        and node.value.id.endswith("fault")
    )


def test_no_code_takes_a_field_of_a_fault_apart():
    found = found_in_files(taken_apart)
    assert {file: found[file] for file in found.keys() - STILL} == {}


@pytest.mark.parametrize(
    "code",
    [
        "'a' in fault.rule",
        "fault.got.replace('a', 'b')",
        "re.sub(p, q, fault.fix)",
        "f(fault.rule)",
    ],
)
def test_taking_a_field_of_a_fault_apart_is_found(code):
    assert taken_apart(ast.parse(code)) == [code]
    assert not taken_apart(ast.parse("f'{fault.rule}' if fault.fix else fault.at('a')"))
