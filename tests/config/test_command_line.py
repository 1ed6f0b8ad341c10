"""A whole command line is checked before Hydra runs it: every job of a sweep, and components of the
user's own.
"""

import sys

import pytest
from refusals import refused

from tests.user_components import forget_user_components
from xformer_kit import ConfigError, build, compose
from xformer_kit.config import GROUPS, config_hash, config_yaml, preflight, read_config

MINE = '''
from xformer_kit.attention import ATTENTIONS, HeadShape, MultiHead


@ATTENTIONS.register("mine")
class Mine(MultiHead):
    """Multi-head attention with a knob."""

    def __init__(self, dim, norm, kernel, *, heads: int = 8, knob: float = 1.0):  # of the output
        super().__init__(dim, norm, kernel, shape=HeadShape(heads))
        self.knob = knob

    def forward(self, x, source, context, cache=None):
        return self.knob * super().forward(x, source, context, cache)
'''


@pytest.fixture
def mine(tmp_path):
    yield tmp_path / "my_components.py"
    forget_user_components()


def test_components_of_a_package_that_is_installed_meanwhile_are_found(tmp_path, monkeypatch):
    compose(["logger=none"])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "xformer_kit_components_offered.py").write_text(MINE)
    about = tmp_path / "offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[xformer_kit.components]\nmine = xformer_kit_components_offered\n"
    )
    try:
        assert compose(["logger=none", "attn=mine", "attn.knob=2"])["attn"]["knob"] == 2.0
    finally:
        GROUPS["attn"].forget("xformer_kit_components_offered")


def test_a_budget_or_a_design_that_a_line_chooses_has_nothing_of_the_files():
    def asked(*words):
        return preflight(["study=norm_placement", *words]).study

    whole = asked()["budget"]
    assert "by" in whole
    assert asked("study.budget={match: tokens}")["budget"] == {"match": "tokens"}
    assert asked("study.budget={tolerance: 0.05}")["budget"] == whole | {
        "tolerance": 0.05
    }  # laid over it
    design = {"name": "random", "count": 1}
    assert (
        preflight(["study=ladder", "study.design={name: random, count: 1}"]).study["design"]
        == design
    )


def test_a_key_that_is_no_group_has_a_plus_prefix_for_hydra():
    line = preflight(
        ["-m", "attn.heads=2,4,8", "position=rotary,alibi", "hydra.run.dir=x", "--config-dir", "."]
    )
    assert line.argv == [
        "-m",
        "--config-dir",
        ".",
        "++attn.heads=2,4,8",
        "position=rotary,alibi",
        "hydra.run.dir=x",
    ]
    assert line.multirun
    assert len(line.configs) == 6


def test_every_job_of_a_sweep_is_checked_before_the_first():
    with pytest.raises(ConfigError) as error:
        preflight(["-m", "attn.heads=4,7,8,9"])
    assert [fault.split(" [job ")[1] for fault in error.value.messages] == [
        "attn.heads=7]",
        "attn.heads=9]",
    ]
    assert all(
        fault.startswith("attn.heads: must divide model.dim; got ")
        for fault in error.value.messages
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "-m resume=a,b",
            "resume: is one instruction for all jobs, not a choice of a sweep; got resume=a,b. Give"
            " it one value.",
        ),
        (
            "-m hydra.job.name=a,b",
            "hydra.job.name: is one instruction for all jobs, not a choice of a sweep; got"
            " hydra.job.name=a,b. Give it one value.",
        ),
        (
            "hydra/sweeper=optuna",
            "hydra/sweeper: no choice is called 'optuna'. Known: basic, study.",
        ),
        (
            "-m hydra.sweeper.params.seed=1,2",
            "hydra.sweeper.params.seed: the choices of a sweep are overrides of the line; got"
            " hydra.sweeper.params.seed=1,2. Try -m KEY=1,2.",
        ),
        (
            "-m +hydra.sweeper.params.seed='1,2'",
            "hydra.sweeper.params.seed: the choices of a sweep are overrides of the line; got"
            " +hydra.sweeper.params.seed='1,2'. Try -m KEY=1,2.",
        ),
        (
            "-m attn={name:multi_head,heads:2},linear",
            ("attn: no attn is called '{name:multi_head,heads:2}'. Known: compositional,"),
        ),
        (
            "-m optim.lr=interval(0,1)",
            "optim.lr: must list its values for a plain sweep; got optim.lr=interval(0,1).",
        ),
        (
            "--max_steps 10",
            (
                "--max_steps: is no flag. Options are written without dashes:"
                " trainer.max_steps=VALUE. See python train.py --help."
            ),
        ),
        (
            "--learning-rate=0.1",
            (
                "--learning-rate=0.1: is no flag. Options are written without dashes: optim.lr=0.1."
                " See python train.py --help."
            ),
        ),
        ("--config-dir no/such/place", "--config-dir: is no directory; got no/such/place."),
        (
            "hydra.run.dir=/proc/x",
            "hydra.run.dir: must name a directory that can be made; got '/proc/x' (nothing can be"
            " written into /proc).",
        ),
        (
            "hydra.run.dir=null",
            "hydra.run.dir: must name a directory that can be made; got '' (it is empty).",
        ),
        (
            "hydra.run.dir=pyproject.toml/run",
            "hydra.run.dir: must name a directory that can be made; got 'pyproject.toml/run'"
            " (pyproject.toml is a file).",
        ),
        (
            f"hydra.run.dir={300 * 'a'}",
            f"hydra.run.dir: must name a directory that can be made; got '{300 * 'a'}' (a name"
            " has at most 255 bytes).",
        ),
        ("=3", "=3: must be key=value."),
        ("resume=", "resume: must name a run's directory; got ''."),
        (
            "study=norm_placement hydra.run.dir=x",
            "hydra.run.dir: a run of a study lies in study.runs/<key>",
        ),
        (
            "study=norm_placement hydra/sweeper=basic",
            "hydra/sweeper: a study is run by the sweeper of that name",
        ),
        (
            "-m experiment=glob(zz*)",
            "experiment: no choice matches the pattern; got experiment=glob(zz*). Known: cogs,",
        ),
        (
            "attn=mqa attn=gqa",
            "attn: is given more than once; got attn=mqa, attn=gqa. Keep one of them.",
        ),
        ("+data=pydoc", "data: cannot be composed: data appears more than once in the final"),
        ("++attn=mqa", "attn: cannot be composed: force-add of config groups is not supported"),
        (
            "-m attn=mqa,cosine attn.kv_heads=2",
            "attn.kv_heads: 'mqa' is multi_head with kv_heads=1; got 2. Leave one of them out, or"
            " name 'multi_head'. [job attn=mqa]",
        ),
        (
            "+attn=mqa",
            "attn: cannot be composed: Multiple values for attn. To override a value use",
        ),
        ("-m model.dim=glob(*)", "model.dim: is no group, and glob lists the choices of a group"),
        (
            "attn.heads=2,4",
            (
                "attn.heads: several values are a sweep; got attn.heads=2,4. Put -m before the"
                " overrides"
            ),
        ),
    ],
)
def test_a_line_that_cannot_run_is_one_sentence(line, sentence):
    with pytest.raises(ConfigError) as error:
        preflight(line.split())
    assert error.value.messages[0].startswith(sentence)


def test_flags_may_be_anywhere_in_the_command_line():
    assert preflight(["attn.heads=2,4", "-m"]).argv == ["-m", "++attn.heads=2,4"]


def test_a_study_of_ones_own_needs_no_header(tmp_path):
    (tmp_path / "study").mkdir()
    node = "study: {baseline: {attn.heads: 2}, factors: {attn.heads: [4]}}"
    (tmp_path / "study" / "bare.yaml").write_text(f"# @package _global_\n{node}\n")
    line = preflight(["--config-dir", str(tmp_path), "study=bare", "seed=3"])
    given = ["study=bare", "++seed=3", "hydra/sweeper=study", "hydra.mode=MULTIRUN"]
    assert line.study["name"] == "bare" and line.argv == ["--config-dir", str(tmp_path), *given]


OF_STACKS = {
    "model.decoder.norm=layer model.decoder.norm.eps=1e-3": {
        "norm": {"name": "layer", "eps": 1e-3}
    },
    "model.decoder.attn.heads=4 model.decoder.attn=linear": {
        "attn": {"name": "linear", "heads": 4}
    },
    (
        "model.decoder.pattern=[b] model.decoder.variants.b.mask=chunked "
        "model.decoder.variants.b.mask.chunk=8"
    ): {
        "pattern": ["b"],
        "variants": {"b": {"mask": {"name": "chunked", "chunk": 8}}},
    },
    (
        "model=encoder_decoder task=seq2seq data=scan model.decoder.cross.score=entmax"
        " model.decoder.cross.score.alpha=1.3"
    ): {
        "cross": {"score": {"name": "entmax", "alpha": 1.3}},
    },
}


@pytest.mark.parametrize("line", OF_STACKS)
def test_a_component_of_a_stack_keeps_its_name_beside_its_options(line):
    """Hydra puts the later of the two in place of the earlier, which would train another component
    without a word.
    """
    assert OF_STACKS[line].items() <= compose(line.split())["model"]["decoder"].items()


def test_the_names_of_a_sweep_stay_beside_options_too():
    line = preflight(["-m", "model.decoder.norm=layer,rms", "model.decoder.norm.eps=1e-3"])
    assert line.argv == [
        "-m",
        "++model.decoder.norm.name=layer,rms",
        "++model.decoder.norm.eps=1e-3",
    ]


def test_overrides_of_a_study_are_merged_with_those_of_the_command_line():
    """A level that chooses a component stays with an option of the command line."""
    line = preflight(["study=norm_placement", "model.decoder.norm.eps=1e-3"])
    assert line.compose(["model.decoder.norm=layer"])[0]["model"]["decoder"]["norm"] == {
        "name": "layer",
        "eps": 1e-3,
    }


def test_one_file_of_components_may_stand_without_brackets(mine):
    mine.write_text(MINE)
    assert preflight([f"components={mine}", "attn=mine"]).components == (str(mine),)


def test_a_component_of_ones_own_is_a_choice_like_any_other(mine):
    mine.write_text(MINE)
    config = compose([f"components=[{mine}]", "attn=mine", "attn.knob=3"])
    assert config["attn"] == {"name": "mine", "heads": 8, "knob": 3}
    assert build(config, vocab_size=5).decoder.blocks[0].attn.knob == 3
    with pytest.raises(
        ConfigError, match=r"^attn\.knb: attn 'mine' has no option 'knb'\. Did you mean 'knob'\?"
    ):
        compose([f"components=[{mine}]", "attn=mine", "attn.knb=3"])


def test_a_component_that_changed_is_imported_anew(mine, monkeypatch):
    """Also within the second and to the same length, which Python's kept bytecode does not tell."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    mine.write_text(MINE)
    compose([f"components=[{mine}]", "attn=mine"])
    mine.write_text(MINE.replace("knob: float = 1.0", "knob: float = 7.0"))
    assert compose([f"components=[{mine}]", "attn=mine"])["attn"]["knob"] == 7.0


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def f(:\n", "components: cannot read {file}: line 1: invalid syntax."),
        (
            MINE.replace("knob: float = 1.0):  # of the output", "**knobs: float):"),
            (
                "components: {file}: attn 'mine': takes **knobs: float. Name every option instead,"
                " so that a typo in a config is an error."
            ),
        ),
        (
            MINE.replace("knob: float = 1.0", "knob=1.0"),
            "components: {file}: attn 'mine': option knob has no type. Annotate it, e.g. knob: int"
            " = 1.",
        ),
        ("\n1 / 0\n", "components: {file}, line 2, raised ZeroDivisionError: division by zero."),
        ("import sys; sys.exit(3)\n", "components: {file}, line 1, raised SystemExit: 3."),
    ],
)
def test_a_file_of_components_that_cannot_be_read_is_one_sentence(mine, source, sentence):
    mine.write_text(source)
    faults = refused([f"components=[{mine}]"])
    assert faults[0] == sentence.format(file=mine)
    assert refused([f"components=[{mine}]"]) == faults


def test_a_saved_config_is_read_back_as_it_was(tmp_path):
    config = compose(["optim.lr=1e-5", "schedule=wsd"])
    (tmp_path / "config.yaml").write_text(config_yaml(config))
    assert read_config(tmp_path) == config


def test_the_hash_is_of_what_is_computed():
    base = config_hash(compose([]))
    for same in (["logger=none"], ["data.num_workers=3"], ["trainer.val_every=7"], ["name=other"]):
        assert config_hash(compose(same)) == base
    for other in (["attn.heads=4"], ["seed=1"], ["optim.lr=4e-3"], ["data.batch_size=4"]):
        assert config_hash(compose(other)) != base


def test_a_task_comes_with_what_suits_it():
    def argv(*words):
        return preflight(list(words)).argv

    assert argv("task=language_modeling") == ["task=language_modeling"]
    assert argv("attn.heads=8") == ["++attn.heads=8"]
    decoder = ["task_defaults=[seq2seq,prefix_mask]", "task=seq2seq"]
    assert argv("task=seq2seq") == decoder
    assert argv("task=seq2seq", "mask=causal") == [
        "task_defaults=[seq2seq]",
        "task=seq2seq",
        "mask=causal",
    ]
    assert argv("task=seq2seq", "data=scan", "task_defaults=null") == [
        "task=seq2seq",
        "data=scan",
        "~task_defaults",
    ]
    assert argv("task=seq2seq", "experiment=scan_simple") == [
        "task_defaults=[seq2seq]",
        "task=seq2seq",
        "experiment=scan_simple",
    ]
    two = ["model=encoder_decoder", "task=seq2seq", "data=dates"]
    assert argv(*two) == ["task_defaults=[seq2seq_dates]", *two]
    flag = "--hydra-help"
    for flags in ([flag, "task=seq2seq"], ["task=seq2seq", flag]):
        assert argv(*flags) == [flag, *decoder]  # Hydra takes no flag between overrides


def test_an_interpolation_that_leads_nowhere_is_told_with_its_place():
    [sentence] = refused(["name=${nobody}"])
    assert sentence.startswith(
        "name: cannot be composed: Interpolation key 'nobody' not found. Name another"
    )
