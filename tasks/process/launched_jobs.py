"""Jobs of a multirun or study that a launcher such as submitit or Ray runs in other processes,
perhaps on other machines: what is refused, how one that is stopped before its time limit goes on,
and what is said of one that has ended without a result.

Submitit sends a job SIGUSR2, or what SUBMITIT_PREEMPT_SIGNAL names, before its time limit. Its
handler puts the job back into the queue and exits (facebookincubator/submitit,
docs/checkpointing.md); here the run saves its state first, and the same job resumes it.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from xformer_kit.registry import Fault, config_error
from xformer_kit.registry.messages import first_line


def check_launcher(options: Mapping[str, Any]) -> None:
    """Raises ConfigError if each job would be started several times; options: hydra.launcher."""
    for name in ("nodes", "tasks_per_node"):
        if (count := options.get(name) or 1) > 1:
            raise config_error(
                f"hydra.launcher.{name}",
                "must be 1: a job starts the processes of its run by itself",
                count,
                fix=f"Try trainer.devices={count} hydra.launcher.gpus_per_node={count}."
                if name == "tasks_per_node"
                else "A run on several nodes is started by srun or torchrun, without -m.",
            )


def job_of_submitit(job_id: str) -> str:
    """Returns the job's number if submitit has started this process, else ""; job_id:
    hydra.job.id. The number stays when the job returns to the queue.
    """
    return job_id if _requeue() is not None else ""


def requeued(run: Callable[[], int]) -> int:
    """Calls `run` and returns its exit code. If the signal of submitit stopped it, the job returns
    to the queue, and this process ends; the code is returned if the job has had its last try.
    """
    if (requeue := _requeue()) is None:
        return run()
    number = _signal()

    def stop(received: int, frame: object) -> None:
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:  # there is no state to save yet
            requeue(received, frame)
        else:
            os.kill(os.getpid(), signal.SIGUSR1)

    if number != signal.SIGUSR1:
        signal.signal(number, stop)
    try:
        code = run()
    finally:
        signal.signal(number, requeue)
    if code == 128 + signal.SIGUSR1:
        try:
            requeue(number, None)
        except RuntimeError as error:  # UncompletedJobError: it timed out too often
            print(first_line(str(error)), flush=True)
    return code


def lost_job(error: Exception) -> Fault:
    """Returns the fault of a launcher's exception: a job was killed, or none was accepted."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip("- \t")]
    reason = " ".join(lines[:2]) or type(error).__name__
    if lines and "trace" in lines[0].lower():  # submitit appends that of a job's own exception
        reason = lines[-1]
    return Fault("hydra/launcher", f"not all jobs have a result: {first_line(reason).rstrip('.?')}")


def _signal() -> int:
    name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
    return int(getattr(signal, f"SIG{name}"))


def _requeue() -> Callable[[int, Any], Any] | None:
    """The handler with which submitit puts the job of this process back into the queue."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    handler = signal.getsignal(_signal())
    return handler if callable(handler) else None
