"""Exit codes of a run, and the exceptions that end it; each message contains what to do next."""

import errno
import os
import signal

# Exit codes; a signal gives 128 + its number: 130, 138, 143.
CONFIG = 2
FAILED = 1
NONFINITE = 3
PRUNED = 4
DIVERGED = (
    "a lower optim.lr, a longer schedule.warmup, trainer.gradient_clip_val, or"
    " trainer.precision=32-true."
)
RESTART_HINT = f"Going on with this run would end at the same step: start a new one with {DIVERGED}"
SIGNALS = (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Of a disk or of what is on it too, not of the program.
DISK_ERRORS = "EROFS EIO EACCES EPERM ESTALE ENXIO EISDIR ENOTDIR"
DISK = {getattr(errno, name) for name in DISK_ERRORS.split()}


class Ended(Exception):  # noqa: N818
    """A run that ended before its last step; `code` is the exit code, `step` the number of the step
    at which it ended, if that is known.
    """

    code = FAILED

    def __init__(self, text: str, step: int | None = None):
        super().__init__(text)
        self.step = step


class StoppedBySignal(Ended):
    """A signal stopped the run, and its state was saved."""

    def __init__(self, number: int, step: int):
        super().__init__(f"Stopped by {signal.Signals(number).name} at step {step}.", step)
        self.code = 128 + number


class NonFinite(Ended):
    """A step gave a loss or gradient that is not finite; the weights are those before that step.
    The step is counted from 1.
    """

    code = NONFINITE


class Pruned(Ended):
    """The pruner of a search ended the run after a validation; its state was saved."""

    code = PRUNED

    def __init__(self, step: int):
        text = f"Ended early at step {step}: by what it measured, the search gave it up."
        super().__init__(text, step)


class NotSaved(Ended):
    """A checkpoint could not be written; the one before it is untouched."""


class NoRun(Ended):
    """A directory that was to be resumed is no run, or not one that fits."""

    code = CONFIG


VOTES = 1000  # fewer ranks than that


def ballot(number: int, late: bool = False) -> int:
    """A signal, and the end of trainer.max_time, as a number that ranks can add up."""
    signals = VOTES ** SIGNALS.index(signal.Signals(number)) if number else 0
    return signals + late * VOTES ** len(SIGNALS)


def overtime(votes: int) -> bool:
    """Whether any rank's time was up, from the sum of their ballots."""
    return votes >= VOTES ** len(SIGNALS)


def elected(votes: int) -> int:
    """The signal that ranks were sent, from the sum of their ballots; 0 for none."""
    return next((int(s) for i, s in enumerate(SIGNALS) if votes // VOTES**i % VOTES), 0)


def end_at_signals() -> None:
    """Until a run handles them itself, end this process at a signal with one line and 128 + its
    number: imports take seconds, and an exception raised during one may be lost or leave a
    traceback.
    """
    for number in SIGNALS:
        signal.signal(number, _end_at_once)


def _end_at_once(number: int, _frame: object) -> None:
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"Stopped by {signal.Signals(number).name}.\n".encode())
    os._exit(128 + number)


class SignalBox:
    """Remembers the first signal that stops the run; a second SIGINT ends it at once.

    Until `patient` is set, i.e. while there is no step to finish, a signal raises StoppedBySignal
    itself.
    """

    def __init__(self):
        self.number = 0  # of the signal that came; 0: none
        self.late = False  # whether trainer.max_time has passed
        self.patient = False
        self.step = 0
        self._before: dict[int, object] = {}

    def install(self) -> None:
        for number in SIGNALS:
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _handle(self, number: int, _frame: object) -> None:
        again, self.number = self.number == number == signal.SIGINT, number
        if not self.patient:
            raise StoppedBySignal(number, self.step)
        if again:
            raise KeyboardInterrupt
