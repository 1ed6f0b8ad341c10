"""Starts a run on W&B, which is offline without a login or a connection."""

import os
import re
import secrets
from pathlib import Path
from typing import Any

from tasks import Facts

OPTIONS = ("project", "entity", "group", "job_type", "tags")  # of the config's logger
MAX_GROUP = 128  # characters that W&B accepts
MAX_JOB_TYPE = 64
MAX_TAG = 64


def start_wandb_run(
    node: Facts, directory: Path, *, shown: str = "", **options: Any
) -> tuple[Any, str | None]:
    """Returns (W&B's run for the node of a `logger`, a message to the user or None, such as how to
    sync). Its files are written into the directory, which the message has as `shown`.
    """
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_login() else "offline")
    options = {key: node[key] for key in OPTIONS if node.get(key)} | options
    options["settings"] = wandb.Settings(
        init_timeout=30,
        console="off",
        silent=True,
        x_disable_stats=False,
        # By default W&B runs git in `dir`, where an untrusted run may have a .git/config with
        # commands.
        git_root=str(directory.resolve().parent),
    )
    message = ""
    try:
        run = wandb.init(mode=mode, dir=directory, **options)
    except Exception as error:
        if mode != "online":
            raise
        mode = "offline"
        run = wandb.init(mode=mode, dir=directory, **options)
        message = f"W&B cannot be reached ({error_line(error)}). "
    if mode == "offline":
        path = f"{shown}/wandb/offline-run-*" if shown else Path(run.dir).parent
        message += f"W&B logs offline; to sync: wandb sync {path}"
    elif mode == "online":
        message = f"W&B: {run.url}"
    return run, message or None


def wandb_id(run_dir: Path) -> str:
    """Returns the id of a run on W&B, which is the same after a resume."""
    path = run_dir / "wandb_id.txt"
    if not path.exists():
        path.write_text(secrets.token_hex(4))
    return path.read_text().strip()


def error_line(error: BaseException) -> str:
    """Returns the type and the first line of an error, without passwords of URLs."""
    line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {without_password(line)}"


def without_password(text: str) -> str:
    """Returns a text with `scheme://host` in place of each `scheme://user:password@host`."""
    return re.sub(r"://[^/\s]*@", "://", text)


def _has_login() -> bool:
    from requests.utils import get_netrc_auth

    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    return get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")) is not None
