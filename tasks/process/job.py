"""The arguments of a process that trains a run."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tasks import Config, Files


@dataclass(frozen=True)
class Job:
    """A run to train, and how the process that trains it reports. Another process receives it as
    two command-line arguments: the directory, and the other fields as JSON.
    """

    run_dir: Path
    components: Files = ()  # Python files with components of the user
    in_multirun: bool = False  # ends with one line instead of a page of results
    quiet: bool = False  # shows no progress bar: other runs train at the same time
    silent: bool = False  # prints nothing; train.log and ended.json have the messages
    key: str | None = None  # the key by which a study planned the run
    trial: Config | None = None  # of a search, see tasks/callbacks/pruning.py
    digest: str | None = None  # hash of the config to train, see `config_digest` in train.py
    max_steps: int | None = None  # trainer.max_steps of a run that resumes with another length
    parent: int | None = None  # process id; the training process ends when this process does

    @property
    def shows_stages(self) -> bool:
        """Whether the process shows its stages before the first step, such as reading the data."""
        return not (self.in_multirun or self.quiet or self.silent)

    def arguments(self) -> list[str]:
        """The two command-line arguments."""
        fields = asdict(self)
        return [str(fields.pop("run_dir")), json.dumps(fields)]

    @classmethod
    def from_arguments(cls, run_dir: str, fields_json: str) -> Self:
        fields = json.loads(fields_json)
        return cls(Path(run_dir), tuple(fields.pop("components")), **fields)
