"""A process that trains a run from its saved config.

    python -m tasks.run.worker RUN_DIR JOB COUNT

If COUNT is 1, the process trains; otherwise it is the agent of torch.distributed.run that starts
COUNT ranks, each a worker process with COUNT 1. Every process ends when its parent does. JOB: see
`tasks.process.job`.
"""

import dataclasses
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tasks.logging.streams import output_without_reader
from tasks.process.exit_codes import end_at_signals
from tasks.process.job import Job
from tasks.process.processes import discard_output, end_with_parent, worker_command
from tasks.process.ranks import rank_timeout
from xformer_kit.text.command_lines import resume

FORWARDED_SIGNALS = "SIGTERM,SIGINT,SIGUSR1,SIGHUP,SIGQUIT"  # from the agent to its ranks


def run_agent(job: Job, count: int) -> int:
    """Starts `count` ranks with torch.distributed.run's launcher and returns the exit code. If a
    rank was killed, prints one line.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    # Torch's loggers set their own levels; errors are printed below.
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = FORWARDED_SIGNALS
    try:
        python, *arguments = worker_command(job, 1)
        elastic_launch(_launch_config(job.run_dir, count), python)(*arguments)
    except ChildFailedError as error:
        rank, failure = min(error.failures.items(), key=lambda item: item[1].timestamp)
        if failure.exitcode >= 0:
            return failure.exitcode
        print(
            f"Rank {rank} was killed by {signal.Signals(-failure.exitcode).name}, so the run"
            f" stopped. Go on with: {resume(job.run_dir, job.components)}",
            file=sys.stderr,
        )
        return 1
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _launch_config(run_dir: Path, count: int) -> Any:
    """The LaunchConfig of ranks on this machine, without the fields that an older torch lacks."""
    from torch.distributed.launcher.api import LaunchConfig

    options: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": count,
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "local_addr": "localhost",
        "run_id": f"xformer-{os.getpid()}",
        "max_restarts": 0,
        "monitor_interval": 0.1,  # seconds
        "signals_to_handle": FORWARDED_SIGNALS,
        # Seconds in which ranks can save a checkpoint before they are killed.
        "shutdown_timeout": 60 + _rank_timeout(run_dir),
    }
    fields = {field.name for field in dataclasses.fields(LaunchConfig)}
    return LaunchConfig(**{key: value for key, value in options.items() if key in fields})


def _rank_timeout(run_dir: Path) -> int:
    """trainer.rank_timeout, rounded up to whole seconds, after which the other ranks end a stopped
    rank and save the state; 0 for never.
    """
    from xformer_kit.config import read_config

    return math.ceil(rank_timeout(read_config(run_dir)["trainer"]) or 0)


def main() -> int:
    """Runs the command line of this module; returns the exit code."""
    job, count = Job.from_arguments(*sys.argv[1:3]), int(sys.argv[3])
    if job.silent and count == 1:
        discard_output()
    end_at_signals()
    end_with_parent(job.parent)
    if count > 1:
        return run_agent(job, count)
    from tasks.run.train import train_run

    with output_without_reader():
        return train_run(job)


if __name__ == "__main__":
    sys.exit(main())
