"""The logger `wandb`."""

from pathlib import Path
from typing import Any

from tasks import Config, Facts, Metrics, State
from tasks.logging.run_logger import RunLogger
from tasks.logging.wandb_run import start_wandb_run, wandb_id


class WandbRunLogger(RunLogger):
    """Logs to a run on W&B. The step is one of the values, so that steps repeated after a resume
    are accepted.
    """

    def log(self, row: Metrics, step: int) -> None:
        self.lightning.experiment.log(row | {"step": step})

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        import wandb

        self.lightning.experiment.log({name: wandb.Table(columns=columns, data=rows), "step": step})

    def picture(self, name: str, path: Path, step: int) -> None:
        import wandb

        self.lightning.experiment.log({name: wandb.Image(str(path)), "step": step})

    def finish(self, summary: State, code: int) -> None:
        run = self.lightning.experiment
        run.summary.update({k: v for k, v in summary.items() if isinstance(v, (int, float, str))})
        run.finish(exit_code=code)


def create_wandb(node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, str | None]:
    """Returns (logger, message to the user or None)."""
    from lightning.pytorch.loggers import WandbLogger

    run, message = start_wandb_run(
        node,
        run_dir,
        name=f"{config['name']}/{run_dir.name}",
        id=wandb_id(run_dir),
        resume="allow",
        config=config,
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return WandbRunLogger(WandbLogger(experiment=run)), message
