"""The result of checking a command line."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xformer_kit.registry import Fault


@dataclass
class CommandLine:
    """A checked command line: the words for Hydra, and the instructions that are not Hydra's."""

    argv: list[str]  # for hydra.main
    multirun: bool = False
    components: tuple[str, ...] = ()
    resume: str | None = None
    max_steps: int | None = None  # of the run to resume; None: as in its config
    jobs: int = 1
    configs: list[dict[str, Any]] = field(default_factory=list)  # of the jobs, but for a study
    study: dict[str, Any] | None = None  # the node of a study
    # Composes a variant of the study: (config, faults) of the line followed by these words.
    compose: Callable[[list[str]], tuple[dict[str, Any], list[Fault]]] | None = None
    # Converts the words of a run of the study to Hydra's form.
    job: Callable[[list[str]], list[str]] = list
    # Seconds of two trials of (config, component files), for the forecast of a dry run.
    trial_seconds: Callable[[dict[str, Any], tuple[str, ...]], tuple[float, float]] | None = None
    shown: str | None = None  # what --cfg job prints: the config of the run, or a part of it
    help: bool = False  # whether the line has --help; it is not checked further
