"""What W&B is given of a run."""

import subprocess

from tasks.logging.wandb_run import start_wandb_run


def git(folder, *words):
    known = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(
        known, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_repository_is_never_one_inside_the_run(tmp_path, monkeypatch):
    """git runs commands that a repository's own config names, and a run may come from somebody
    else.
    """
    run = tmp_path / "outputs" / "run"
    run.mkdir(parents=True)
    for folder, said in ((tmp_path, "ours"), (run, "theirs")):
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", said)
    monkeypatch.setenv("WANDB_MODE", "offline")
    kept, _ = start_wandb_run({"project": "x"}, run)
    kept.finish()
    assert kept.settings.git_commit == git(tmp_path, "rev-parse", "HEAD")
