"""A logger: python train.py components=[docs/examples/json_lines.py] logger=json_lines"""

import json

from lightning.pytorch.loggers import Logger

from xformer_kit.config.options.logger_options import LOGGERS


@LOGGERS.register("json_lines")
class JSONLines(Logger):
    """One line of JSON for each logged step, in a file of the run's directory (jsonlines.org)."""

    name, version = "json_lines", ""

    def __init__(self, run_dir, *, file: str = "metrics.jsonl"):  # name of the file
        super().__init__()
        self.file = run_dir / file

    def log_metrics(self, metrics, step=None):
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": step, **metrics}) + "\n")

    def log_hyperparams(self, params, *args, **kwargs):
        pass
