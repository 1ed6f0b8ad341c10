"""A run on W&B: offline without a login or without a connection."""

import os
import secrets
from pathlib import Path
from typing import Any

from tasks import Facts

OPTIONS = ("project", "entity", "group", "job_type", "tags")  # of the logger's node
GROUP, JOB_TYPE, TAG = 128, 64, 64  # characters that W&B takes


def start_wandb_run(node: Facts, folder: Path, **more: Any) -> tuple[Any, str | None]:
    """The W&B run of a `logger` config, with its files in `folder`, and a line for the user, such
    as how to sync.
    """
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_login() else "offline")
    wanted = {"dir": str(folder), **{key: node[key] for key in OPTIONS if node.get(key)}, **more}
    # W&B runs git in `dir`: a run from elsewhere may hold a .git/config that names
    # commands.
    root = str(folder.resolve().parent)
    settings = wandb.Settings(
        init_timeout=30, console="off", silent=True, x_disable_stats=False, git_root=root
    )
    line = ""
    try:
        run = wandb.init(mode=mode, settings=settings, **wanted)
    except Exception as error:
        if mode != "online":
            raise
        run, mode = wandb.init(mode="offline", settings=settings, **wanted), "offline"
        line = f"W&B cannot be reached ({first_line(error)}). "
    if mode == "offline":
        line += f"W&B logs offline; to sync: wandb sync {Path(run.dir).parent}"
    elif mode == "online":
        line = f"W&B: {run.url}"
    return run, line or None


def wandb_id(run_dir: Path) -> str:
    """The id of a run's directory on W&B, the same after a resume."""
    path = run_dir / "wandb_id.txt"
    if not path.exists():
        path.write_text(secrets.token_hex(4))
    return path.read_text().strip()


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _has_login() -> bool:
    from requests.utils import get_netrc_auth

    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    return get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")) is not None
