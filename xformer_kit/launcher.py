"""Whether torchrun or SLURM has started this process as one of several ranks."""

import os

# names of the jobs of SLURM in which a person types commands, also for Lightning
INTERACTIVE = ("bash", "interactive")


def slurm_tasks() -> int:
    """Number of tasks of SLURM of which this process is one; 1 without SLURM, and in a shell that
    SLURM has started, whose command is a single process.
    """
    if "SLURM_PROCID" not in os.environ or os.environ.get("SLURM_JOB_NAME") in INTERACTIVE:
        return 1
    return int(os.environ.get("SLURM_NTASKS", 1))


def launched() -> int:
    """Number of processes that torchrun or SLURM has started; 0 if they have not."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return int(os.environ.get("WORLD_SIZE", 1))
    return slurm_tasks() if has_launcher() else 0


def has_launcher() -> bool:
    """Whether torchrun or SLURM has already started one process per device."""
    return "TORCHELASTIC_RUN_ID" in os.environ or slurm_tasks() > 1
