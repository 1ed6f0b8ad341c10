"""The logger `mlflow`."""

import csv
import io
import logging
import os
from pathlib import Path
from typing import Any

from tasks import Config, Facts, State
from tasks.logging.run_logger import RunLogger, flat_config, not_of_steps, of_run
from tasks.logging.wandb_run import without_password
from xformer_kit.text.printable import cell

LOCAL_STORE = "sqlite:///mlflow.db"  # in the current directory, as `mlflow ui` reads it
# Of a request. MLflow's own 7 retries delay a run by 4 minutes if a server cannot be reached.
RETRIES = "3"


class MLflowRunLogger(RunLogger):
    """Logs to a run of MLflow, with samples and pictures as artifacts."""

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([columns, *(map(cell, row) for row in rows)])
        logger = self.lightning
        logger.experiment.log_text(logger.run_id, text.getvalue(), f"{name}.csv")

    def picture(self, name: str, path: Path, step: int) -> None:
        logger = self.lightning
        logger.experiment.log_artifact(logger.run_id, str(path), f"{name}/step_{step}")

    def finish(self, summary: State, code: int) -> None:
        numbers = {key: value for key, value in summary.items() if type(value) in (int, float)}
        if numbers:
            self.log(not_of_steps(numbers), summary["steps"])
        super().finish(summary, code)


def create_mlflow(node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, str]:
    """Returns (logger, message to the user). A run that is resumed continues its run of MLflow."""
    for variable, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": RETRIES,
        "MLFLOW_LOGGING_LEVEL": "WARNING",
    }.items():
        os.environ.setdefault(variable, value)
    from lightning.pytorch.loggers import MLFlowLogger

    logging.getLogger("alembic").setLevel(logging.WARNING)  # it creates the tables of a local store
    uri = node["tracking_uri"] or os.environ.get("MLFLOW_TRACKING_URI") or LOCAL_STORE
    id_file = run_dir / "mlflow_id.txt"
    resumed = id_file.exists()
    logger = of_run(MLFlowLogger)(
        experiment_name=node["experiment"],
        run_name=node["run_name"] or f"{config['name']}/{run_dir.name}",
        tracking_uri=uri,
        run_id=id_file.read_text().strip() if resumed else None,
    )
    if resumed:
        logger.experiment.update_run(logger.run_id, status="RUNNING")
    else:
        id_file.write_text(str(logger.run_id))
        logger.log_hyperparams(flat_config(config))
    view = f"; to view: mlflow ui --backend-store-uri {uri}" if uri == LOCAL_STORE else ""
    return MLflowRunLogger(
        logger
    ), f"MLflow: experiment {node['experiment']} in {without_password(uri)}{view}"
