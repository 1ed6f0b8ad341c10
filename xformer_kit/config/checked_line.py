"""What is known of a command line after its checks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import Fault


@dataclass
class CommandLine:
    """A checked command line: what Hydra is given, and the instructions that are not Hydra's."""

    argv: list[str]  # for hydra.main
    multirun: bool = False
    components: tuple[str, ...] = ()
    resume: str | None = None
    jobs: int = 1
    study: dict[str, Any] | None = None  # the node of a study; `compose` composes its variants
    # (config, faults) of the line followed by more words
    compose: Callable[[list[str]], tuple[dict[str, Any], list[Fault]]] | None = None
    # the words of a run of the study, as Hydra is given them
    job: Callable[[list[str]], list[str]] = list
    help: bool = False  # whether the line has --help; it is not checked further
