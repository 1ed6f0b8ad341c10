"""Who else hears of a run? W&B, offline where there is no login, or TensorBoard; none that fails ends a run."""

import logging
import netrc
import os
import secrets
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

log = logging.getLogger("xformer")


def make(config: dict[str, Any], run_dir: Path) -> tuple[Logger | None, str | None]:
    """The logger of a run, and a line for its user, such as how to sync."""
    name = config["logger"]["name"]
    try:
        if name == "wandb":
            return _wandb(config, run_dir)
        if name == "tensorboard":
            from lightning.pytorch.loggers import TensorBoardLogger

            return TensorBoardLogger(str(run_dir), name="", version="tensorboard"), None
    except Exception as error:  # an account, a network or a package that fails is no reason to lose a run
        return None, f"The logger {name} cannot start ({_first_line(error)}); the csv files are written."
    return None, None


def _wandb(config: dict[str, Any], run_dir: Path) -> tuple[Logger, str | None]:
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_login() else "offline")
    node = {key: config["logger"].get(key) for key in ("project", "entity", "group", "tags")}
    number = run_dir / "wandb_id.txt"
    if not number.exists():
        number.write_text(secrets.token_hex(4))
    wanted = {"dir": str(run_dir), "name": f"{config['name']}/{run_dir.name}", "id": number.read_text().strip(),
              "resume": "allow", "config": config, **{k: v for k, v in node.items() if v}}  # fmt: skip
    settings = wandb.Settings(init_timeout=30, console="off", silent=True, x_disable_stats=False)
    line = None
    try:
        run = wandb.init(mode=mode, settings=settings, **wanted)
    except Exception as error:
        if mode != "online":
            raise
        run, mode = wandb.init(mode="offline", settings=settings, **wanted), "offline"
        line = f"W&B cannot be reached ({_first_line(error)}). "
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    if mode == "offline":
        line = (line or "") + f"W&B logs offline; to sync: wandb sync {Path(run.dir).parent}"
    elif mode == "online":
        line = f"W&B: {run.url}"
    return WandbLogger(experiment=run), line


def _has_login() -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1].split("/")[0]
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if file and netrc.netrc(os.path.expanduser(file)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


class Quietly:
    """Hands rows to a logger; the first failure is told once, and then it is left alone."""

    def __init__(self, logger: Logger | None):
        self.logger = logger

    def __call__(self, row: dict[str, float], step: int) -> None:
        self._try(lambda logger: self._row(logger, row, step))

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        def add(logger: Any) -> None:
            if hasattr(logger, "log_table"):
                import wandb

                table = wandb.Table(columns=columns, data=rows)
                logger.experiment.log({name: table, "step": step})
            elif hasattr(logger.experiment, "add_text"):
                logger.experiment.add_text(name, "\n\n".join(" | ".join(map(str, row)) for row in rows), step)

        self._try(add)

    def finish(self, summary: dict[str, Any], code: int) -> None:
        def close(logger: Any) -> None:
            if hasattr(logger, "log_table"):
                flat = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
                logger.experiment.summary.update(flat)
                logger.experiment.finish(exit_code=code)
            else:
                logger.finalize("success" if code == 0 else "failed")

        self._try(close)

    @staticmethod
    def _row(logger: Any, row: dict[str, float], step: int) -> None:
        if hasattr(logger, "log_table"):
            logger.experiment.log(row | {"step": step})  # by our own step: rows repeated after a resume are no error
        else:
            logger.log_metrics(row, step)

    def _try(self, act: Any) -> None:
        if self.logger is None:
            return
        try:
            act(self.logger)
        except Exception as error:
            log.warning("The logger failed (%s) and is left alone; the csv files go on.", _first_line(error))
            self.logger = None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
