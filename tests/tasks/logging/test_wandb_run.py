"""The settings of a run on W&B."""

import subprocess

from tasks.logging.wandb_run import start_wandb_run


def git(folder, *words):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_git_repository_is_never_one_inside_the_run(tmp_path, monkeypatch):
    """git runs commands of a repository's own config, and a run may be untrusted."""
    run = tmp_path / "outputs" / "run"
    run.mkdir(parents=True)
    for folder, message in ((tmp_path, "outer"), (run, "inner")):
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", message)
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_run, _ = start_wandb_run({"project": "x"}, run)
    wandb_run.finish()
    assert wandb_run.settings.git_commit == git(tmp_path, "rev-parse", "HEAD")
