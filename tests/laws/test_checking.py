"""Components that declare the laws that they break, and `check_file` on the file of a user."""

from pathlib import Path

import pytest
from breaking import MeanOverPast, registered
from torch.nn import functional as F

from tests.user_components import forget_user_components
from xformer_kit import ConfigError, compose
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.kernel import KERNELS
from xformer_kit.laws import LAWS, check_component, check_file, checking, trials
from xformer_kit.norm import NORMS

pytestmark = pytest.mark.extended


def test_the_laws_of_every_file_have_tests_with_broken_components():
    files = {law.__module__.rsplit(".", 1)[1] for law in LAWS.values()}
    assert [
        name for name in sorted(files) if not Path(__file__).with_name(f"test_{name}.py").exists()
    ] == []


# A component may declare a law that its mathematics breaks.


class DeclaresBrokenLaws(MeanOverPast):
    breaks = {
        "documents": "takes the mean over all that came before",
        "cache": "keeps no state of its mean.",
    }

    def __init__(self, dim: int):  # without options, each value of which would be checked
        super().__init__(dim)


@pytest.mark.slow
def test_a_component_is_exempt_from_a_law_that_it_declares_to_break():
    with registered(FFNS, DeclaresBrokenLaws):
        results = {result.law: result for result in check_component("ffn", "broken").results}
    assert {r.verdict for r in results.values()} == {"ok", "skipped", "broken"}
    sentence = (
        "ffn 'broken' breaks the law of documents (takes the mean over all that came before)."
    )
    assert results["documents"] == ("ffn broken", "documents", "skipped", sentence)
    assert results["greedy"].verdict == "skipped"  # depends on the law `cache`
    assert results["padding"].verdict == "broken"


class MisspeltLaw(MLP):
    breaks = {"paddding": "a typo"}


def test_the_message_for_a_misspelt_law_suggests_the_nearest():
    with registered(FFNS, MisspeltLaw):
        [result] = check_component("ffn", "broken").results
    assert result.verdict == "broken"
    assert result.sentence.startswith(
        "no law is called 'paddding'. Did you mean 'padding'? Known: "
    )


def test_a_component_that_breaks_a_law_is_refused_if_the_task_needs_the_law():
    with registered(FFNS, DeclaresBrokenLaws), pytest.raises(ConfigError) as caught:
        compose(["logger=none", "ffn=broken"])
    assert (
        str(caught.value)
        == "ffn: 'broken' breaks the law of cache (keeps no state of its mean), which"
        " task=language_modeling needs. Choose another ffn."
    )


# A user's file.

MINE = '''
from torch import nn
from xformer_kit.norm import NORMS

@NORMS.register("mine")
class Mine(nn.Module):
    """x * knob."""

    def __init__(self, dim: int, *, knob: float = 0.5):
        super().__init__()
        self.knob = knob

    def forward(self, x):
        return {body}
'''


def check_norm(tmp_path: Path, body: str):
    """Returns the results of a user's file with one norm, by law."""
    file = tmp_path / "my_components.py"
    file.write_text(MINE.format(body=body))
    try:
        results = [result for check in check_file(str(file)) for result in check.results]
    finally:
        for name in [
            component.__module__
            for component in NORMS.values()
            if "my_components" in component.__module__
        ]:
            NORMS.forget(name)
    assert {result.component for result in results} == {"norm mine"}
    return {result.law: result for result in results}


def test_a_users_file_passes(tmp_path):
    results = check_norm(tmp_path, "x * self.knob")
    assert {result.verdict for result in results.values()} == {"ok"}


def test_a_users_file_that_breaks_a_law_is_caught(tmp_path):
    results = check_norm(tmp_path, "x * self.knob + x.mean(1, keepdim=True)")
    assert results["causality"].verdict == "broken"
    assert "norm=mine" in results["causality"].sentence


def test_the_exception_of_a_users_component_is_reported(tmp_path):
    results = check_norm(tmp_path, "x @ 3")
    assert "raised TypeError: " in results["causality"].sentence


# Faulty components: body of the class, and start of the message.
WRONG = {
    "ffn raising": (
        '''
    """x."""

    def __init__(self, dim: int):
        raise RuntimeError("the constructor")
''',
        "raised RuntimeError: the constructor, in line ",
    ),
    "ffn unread": (
        '''
    """x."""

    def __init__(self, dim: int, *, knob):
        super().__init__()
''',
        "ffn 'unread': option knob has no type. Annotate it, e.g. knob: int = 1.",
    ),
    "ffn refused": (
        '''
    """x."""

    @classmethod
    def check(cls, options, context):
        yield from options.nothing.at_all
''',
        "raised AttributeError: 'NoneType' object has no attribute 'at_all', in line ",
    ),
    "kernel fastest": (
        '''
    """Zeros."""

    speed = 99

    def __call__(self, q, k, v, *more):
        raise RuntimeError("the kernel")
''',
        "raised RuntimeError: the kernel, in line ",
    ),
}
BASES = {
    "ffn": ("from xformer_kit.ffn import FFN, FFNS", "FFNS", "FFN"),
    "kernel": ("from xformer_kit.kernel import KERNELS, Reference", "KERNELS", "Reference"),
}


def test_a_fault_of_a_component_is_not_reported_for_another_component_of_the_file(
    tmp_path, monkeypatch
):
    laws = "start", "causality", "kernels"
    monkeypatch.setattr(checking, "LAWS", {law: LAWS[law] for law in laws})
    monkeypatch.setattr(trials, "COMPANIONS", trials.COMPANIONS[:1])
    text = "\n".join(top for top, *_ in BASES.values())
    for component, (body, _) in WRONG.items():
        kind, name = component.split()
        _, registry, base = BASES[kind]
        text += f'\n@{registry}.register("{name}")\nclass {name.title()}({base}):{body}\n'
    file = tmp_path / "my_components.py"
    file.write_text(f"{text}\n{MINE.format(body='x * self.knob')}")
    try:
        results = [result for check in check_file(str(file)) for result in check.results]
    finally:
        for registry in (NORMS, FFNS, KERNELS):
            for component in [*registry.loaded.values()]:
                if "my_components" in component.__module__:
                    registry.forget(component.__module__)
    of_mine = [result for result in results if result.component == "norm mine"]
    assert [(result.law, result.verdict) for result in of_mine] == [(law, "ok") for law in laws]
    for component, (_, sentence) in WRONG.items():
        broken = [r for r in results if r.component == component and r.verdict == "broken"]
        assert broken and all(r.sentence.startswith(sentence) for r in broken)
    assert {result.component for result in results} == {"norm mine", *WRONG}


def test_a_file_without_components_is_refused(tmp_path):
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(
        ConfigError,
        match=r"^components: .*empty\.py registers no component\. Decorate one, e\.g\. @ATTENTIONS",
    ):
        check_file(str(tmp_path / "empty.py"))


SCHEDULE = '''
from xformer_kit.optim.schedules import SCHEDULES, Schedule

@SCHEDULES.register("mine")
class Mine(Schedule):
    """1 / calls."""

    def __init__(self, max_steps: int):
        super().__init__(max_steps, 0)
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return {factor}
'''


def test_a_users_schedule_is_checked_by_the_laws_of_schedules(tmp_path):
    file = tmp_path / "my_schedule.py"
    file.write_text(SCHEDULE.format(factor="1 / self.calls"))
    try:
        results = {result.law: result for c in check_file(str(file)) for result in c.results}
    finally:
        forget_user_components()
    assert {law: one.verdict for law, one in results.items()} == {
        "factor": "ok",
        "function of the step": "broken",
    }
    assert {one.component for one in results.values()} == {"schedule mine"}
    assert results["function of the step"].sentence.endswith("Seen with: schedule=mine")


def test_an_exception_of_a_users_schedule_has_its_line(tmp_path):
    file = tmp_path / "my_schedule.py"
    file.write_text(SCHEDULE.format(factor="step / 0"))
    try:
        [check] = check_file(str(file))
    finally:
        forget_user_components()
    results = check.results
    sentence = "raised ZeroDivisionError: division by zero, in line 14. Seen with: schedule=mine"
    assert {result.sentence for result in results} == {sentence}
    assert {result.verdict for result in results} == {"broken"}


def test_a_kind_without_laws_is_skipped():
    [result] = check_component("callbacks", "early_stopping").results
    assert result.verdict == "skipped"
    assert result.sentence.startswith("there are no laws for this kind; there are for attn, ")


def test_laws_that_compare_forward_passes_are_skipped_if_the_output_is_random():
    class DropsInEvaluation(MLP):
        def forward(self, x, tokens):
            h, report = super().forward(x)
            return F.dropout(h, 0.2), report

    with registered(FFNS, DropsInEvaluation):
        results = {result.law: result for result in check_component("ffn", "broken").results}
    broken = [result.law for result in results.values() if result.verdict == "broken"]
    assert broken == ["evaluation"]
    assert "the law 'evaluation' is broken" in results["causality"].sentence
