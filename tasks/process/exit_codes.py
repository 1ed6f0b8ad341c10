"""Exit codes of a run, and the exceptions that end it; each message contains what to do next."""

import errno
import os
import signal

# Exit codes; a signal gives 128 + its number: 130, 138, 143.
CONFIG = 2
FAILED = 1
NONFINITE = 3
PRUNED = 4
REMEDIES = (
    "a lower optim.lr, a longer schedule.warmup, trainer.gradient_clip_val, or"
    " trainer.precision=32-true."
)
RESTART_HINT = f"Going on with this run would end at the same step: start a new one with {REMEDIES}"
SIGNALS = (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Errors of a disk or of its files, not of the program.
DISK_ERROR_NAMES = "EROFS EIO EACCES EPERM ESTALE ENXIO EISDIR ENOTDIR"
DISK_ERRORS = {getattr(errno, name) for name in DISK_ERROR_NAMES.split()}


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
    """A checkpoint could not be written; the previous one is unchanged."""


class NoRun(Ended):
    """A directory does not hold the run to resume, or cannot be used for a new run."""

    code = CONFIG


MAX_RANKS = 1000  # base of the numbers below: the sum over fewer ranks has no carry


def encode_signal(number: int, time_is_up: bool = False) -> int:
    """Returns a rank's signal (0: none) and whether trainer.max_time has passed as one number.
    Ranks exchange the sum of these numbers, which the two functions below decode.
    """
    encoded = MAX_RANKS ** SIGNALS.index(signal.Signals(number)) if number else 0
    return encoded + time_is_up * MAX_RANKS ** len(SIGNALS)


def decode_time_is_up(total: int) -> bool:
    """Whether trainer.max_time has passed on any rank; total: sum of `encode_signal` over ranks."""
    return total >= MAX_RANKS ** len(SIGNALS)


def decode_signal(total: int) -> int:
    """The signal that any rank received, 0 for none; total: sum of `encode_signal` over ranks."""
    return next((int(s) for i, s in enumerate(SIGNALS) if total // MAX_RANKS**i % MAX_RANKS), 0)


def end_at_signals() -> None:
    """Makes a signal end this process with one line and exit code 128 + its number, until a run's
    SignalBox handles signals.

    Imports take seconds, and an exception raised during one may be lost or leave a traceback.
    """
    for number in SIGNALS:
        signal.signal(number, _exit_at_signal)


def _exit_at_signal(number: int, _frame: object) -> None:
    """Exits without cleaning up, and prints a line on rank 0."""
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"Stopped by {signal.Signals(number).name}.\n".encode())
    os._exit(128 + number)


class SignalBox:
    """Stores the signal that stops the run; a second SIGINT ends the run at once.

    While `waits_for_step` is False, i.e. while there is no step to finish, a signal raises
    StoppedBySignal directly.
    """

    def __init__(self):
        self.number = 0  # of the last signal; 0: none
        self.time_is_up = False  # whether trainer.max_time has passed
        self.waits_for_step = False
        self.step = 0  # steps completed
        self._previous_handlers: dict[int, object] = {}

    def install(self) -> None:
        """Handle the signals until `restore`."""
        for number in SIGNALS:
            self._previous_handlers[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the handlers back that `install` replaced."""
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous_handlers.clear()

    def _handle(self, number: int, _frame: object) -> None:
        """Stores the signal. Raises StoppedBySignal unless the current step is to be finished, and
        KeyboardInterrupt at a second SIGINT.
        """
        repeated, self.number = self.number == number == signal.SIGINT, number
        if not self.waits_for_step:
            raise StoppedBySignal(number, self.step)
        if repeated:
            raise KeyboardInterrupt
