"""The arguments of a process that trains a run."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tasks import Config, Files


@dataclass(frozen=True)
class Job:
    """A run that a process trains. It goes to another process as two arguments: the directory, and
    the rest as JSON.
    """

    run_dir: Path
    components: Files = ()  # Python files with components of the user
    listed: bool = False  # one of a multirun: it ends with a line in place of a page
    quiet: bool = False  # others train at the same time: it draws no bar
    silent: bool = False  # it prints nothing; its log and ended.json have everything
    key: str | None = None  # the key by which a study planned the run
    trial: Config | None = None  # of a search, see tasks/callbacks/pruning.py
    digest: str | None = None  # hash of the config to train, see `tasks.run.train`
    parent: int | None = None  # process id; this process ends when that one does

    @property
    def shows_stages(self) -> bool:
        """Whether it shows what it does before the first step."""
        return not (self.listed or self.quiet or self.silent)

    def arguments(self) -> list[str]:
        rest = asdict(self)
        return [str(rest.pop("run_dir")), json.dumps(rest)]

    @classmethod
    def of(cls, run_dir: str, rest: str) -> Self:
        fields = json.loads(rest)
        return cls(Path(run_dir), tuple(fields.pop("components")), **fields)
