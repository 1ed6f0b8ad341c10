"""The logger `wandb`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import Config, Facts, State
from tasks.logging.run_logger import RunLogger, of_run
from tasks.logging.wandb_run import start_wandb_run, wandb_id
from xformer_kit.checkpoint import shard_folder

# A directory with these files works as RUN in `xformer generate RUN` and the like.
ARTIFACT_FILES = (
    "config.yaml",
    "components.json",
    "tokenizer.json",
    "source_tokenizer.json",
    "summary.json",
    "checkpoints/last.ckpt",
    "checkpoints/best.ckpt",
)


class WandbRunLogger(RunLogger):
    """Logs to a run on W&B. The step is one of the values, so that steps repeated after a resume
    are accepted.

    log_model: see the option of the logger.
    """

    def __init__(self, lightning: Any, run_dir: Path, log_model: bool | str = False):
        super().__init__(lightning)
        self.run_dir = run_dir
        self.log_model = log_model

    def log(self, row: Mapping[str, float], step: int) -> None:
        self.lightning.experiment.log({"tokens": self.tokens()} | dict(row) | {"step": step})

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        import wandb

        self.lightning.experiment.log({name: wandb.Table(columns=columns, data=rows), "step": step})

    def picture(self, name: str, path: Path, step: int) -> None:
        import wandb

        self.lightning.experiment.log({name: wandb.Image(str(path)), "step": step})

    def checkpoint(self, step: int) -> None:
        if self.log_model == "all":
            self._upload(step)

    def finish(self, summary: State, code: int) -> None:
        run = self.lightning.experiment
        if summary and self.log_model:
            self._upload(summary["steps"])
        run.summary.update({k: v for k, v in summary.items() if isinstance(v, (int, float, str))})
        run.finish(exit_code=code)

    def _upload(self, step: int) -> None:
        """Logs an artifact whose files are a directory of the run, for `xformer generate`."""
        import wandb

        run = self.lightning.experiment
        artifact = wandb.Artifact(f"checkpoints-{run.id}", type="model", metadata={"step": step})
        found = [name for name in ARTIFACT_FILES if (self.run_dir / name).exists()]
        for name in found:
            artifact.add_file(str(self.run_dir / name), name=name)
        checkpoints = [self.run_dir / name for name in found if name.endswith(".ckpt")]
        for folder in {shard_folder(path) for path in checkpoints} - {None}:
            place = f"checkpoints/{folder}"
            artifact.add_dir(str(self.run_dir / place), name=place)
        run.log_artifact(artifact, aliases=["latest", f"step-{step}"])


def create_wandb(node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, str | None]:
    """Returns (logger, message to the user or None)."""
    from lightning.pytorch.loggers import WandbLogger

    run, message = start_wandb_run(
        node,
        run_dir,
        shown="RUN",  # the next line has the path, and with that of W&B this one would be too long
        name=node["run_name"] or f"{config['name']}/{run_dir.name}",
        id=wandb_id(run_dir),
        resume="allow",
        config=config,
    )
    for name in ("step", "tokens"):
        run.define_metric(name)
    run.define_metric("*", step_metric=node["x_axis"])
    lightning = of_run(WandbLogger)(experiment=run)
    return WandbRunLogger(lightning, run_dir, node["log_model"]), message
