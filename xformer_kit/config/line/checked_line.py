"""The result of checking a command line."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig

from xformer_kit.config.line.overrides import parse_word
from xformer_kit.registry import Fault


@dataclass
class CommandLine:
    """A checked command line: the words for Hydra, and the instructions that are not Hydra's."""

    argv: list[str]  # for hydra.main
    flags: list[str] = field(default_factory=list)  # of argv
    multirun: bool = False
    components: tuple[str, ...] = ()
    resume: str | None = None
    max_steps: int | None = None  # of the run to resume; None: as in its config
    # The config of each job by its words, see `words_of_job`; of a study: (config, trial) of the
    # runs that are launched, by their keys.
    checked: dict[Any, Any] = field(default_factory=dict)
    composed: DictConfig | None = None  # of a line that trains one run, with Hydra's own node
    study: dict[str, Any] | None = None  # the node of a study
    # Composes a variant of the study: (config, faults) of the line followed by these words.
    compose: Callable[[list[str]], tuple[dict[str, Any], list[Fault]]] | None = None
    timing: Any = None  # tasks.run.trial_run, of a study that needs the time of a run
    shown: str | None = None  # what --cfg job prints: the config of the run, or a part of it
    help: bool = False  # whether the line has --help; it is not checked further

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configs of the jobs; none of a study."""
        return list(self.checked.values())


def words_of_job(words: Iterable[str]) -> frozenset[str]:
    """Returns the overrides of a job, without those of Hydra's own node, each in one form: Hydra's
    sweepers write a word again, without its spaces.
    """
    overrides = [o for word in words for o in parse_word(word) if not o.is_hydra_override()]
    return frozenset(
        f"{o.get_key_element()}={o.get_value_element_as_str()}".rstrip("=") for o in overrides
    )
