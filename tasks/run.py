"""A run from its first step to its summary: start it, resume it, and train it in the processes that
it needs.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from tasks import forge, summary, workers
from tasks.checkpoint import BEST, LAST, PREVIOUS, newest
from tasks.endings import CONFIG, DISK, FAILED, FULL, NONFINITE, Ended, NoRun, Stopped
from xformer_kit.config import GROUPS, check, config_hash, config_yaml, import_parts, read_config
from xformer_kit.config.machine import run_faults
from xformer_kit.config.saved import check_parts, check_unchanged, part_hashes
from xformer_kit.data.cache import CacheRemovedError
from xformer_kit.registry import ConfigError
from xformer_kit.registry import command_lines as proposed
from xformer_kit.registry.printable import printable

log = logging.getLogger("xformer")
MEANT = (  # digest of the config that a process was started to train; its workers inherit it
    "XFORMER_KIT_CONFIG"
)

PARTS_WAY = "parts=[FILE]"  # how train.py is given a file of own components
PROGRESS = (
    f"checkpoints/{LAST}",
    f"checkpoints/{PREVIOUS}",
    "summary.json",
)  # what a new run never overwrites
LEFTOVERS = (
    "metrics.csv",
    "speed.csv",
    "samples.csv",
    "parts.json",
    "profile.txt",
    "trace.json",
    summary.ENDED,
)

WRITTEN = (
    *("config.yaml", "tokenizer.json", "source_tokenizer.json", "train.log", summary.SUMMARY),
    *LEFTOVERS,
    *(f"checkpoints/{name}" for name in (LAST, PREVIOUS, BEST)),
)


def start(
    config: dict[str, Any],
    run_dir: Path,
    parts: tuple[str, ...] = (),
    *,
    job: bool = False,
    quiet: bool = False,
    there: bool | None = None,
) -> int:
    """Begin a run in its directory and return its exit code. `job`: one of a multirun, in a process
    of its own. `there`: whether the directory was there before, where somebody else has made it
    meanwhile.

    Where the config proves wrong once the data are read, what was written is removed again.
    """
    there, fresh = run_dir.exists() if there is None else there, _is_fresh(run_dir)
    try:
        begin = partial(_new_directory, config, run_dir, parts)
        if workers.joined():
            run_dir = workers.agree_on(run_dir, begin)
        else:
            begin()
        os.environ[MEANT] = _digest(config)
        code = _go(config, run_dir, parts, job, quiet)
    except (Ended, ConfigError) as error:
        code = tell(error)
    finally:
        os.environ.pop(MEANT, None)
    if (
        code == CONFIG and fresh and not job and not workers.joined()
    ):  # the table of a multirun lists its failed jobs
        _clear(run_dir, config, there)
    return code


def _is_fresh(run_dir: Path) -> bool:
    """Whether a directory holds nothing but the mark of who has taken it."""
    return not run_dir.exists() or {path.name for path in run_dir.iterdir()} <= {".claim"}


def _clear(run_dir: Path, config: dict[str, Any], there: bool) -> None:
    """Remove what a run that has no checkpoint wrote, and its directory where it was not there
    before; nothing of a run that another process began in it.
    """
    with contextlib.suppress(OSError, ConfigError, NoRun), workers.one_session(run_dir):
        if (
            _digest(read_config(run_dir)) != _digest(config)
            or (run_dir / "checkpoints" / LAST).exists()
        ):
            return
        for path in run_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not there:
            run_dir.rmdir()


def _digest(config: dict[str, Any]) -> str:
    """The same for equal configs, whatever the order of their keys, which saving and reading may
    change.
    """
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def ensure(config: dict[str, Any], run_dir: Path, parts: tuple[str, ...], quiet: bool) -> int:
    """A run of a study, in a process of its own: begun, or gone on with where an earlier process
    left it. Returns the exit code, 0 also where it is finished already.
    """
    if not any((run_dir / "checkpoints" / name).exists() for name in (LAST, PREVIOUS)):
        if summary.read(run_dir) is not None:
            return 0
        return start(config, run_dir, parts, job=True, quiet=quiet, there=True)
    try:
        config = read_config(
            run_dir
        )  # as it was begun: what the key leaves out, such as the logger, may differ by now
        os.environ[MEANT] = _digest(config)
        check_parts(run_dir, parts, PARTS_WAY)
        return 0 if summary.read(run_dir) is not None else _go(config, run_dir, parts, True, quiet)
    except (Ended, ConfigError) as error:
        return tell(error)
    finally:
        os.environ.pop(MEANT, None)


def resume(run_dir: Path, parts: tuple[str, ...] = ()) -> int:
    """Go on with a run where it stopped, from its directory alone."""
    try:
        if not run_dir.is_dir() or not (run_dir / "config.yaml").is_file():
            what = (
                "is not a directory" if not run_dir.is_dir() else "is no run; it has no config.yaml"
            )
            raise NoRun(
                f"resume: {run_dir} {what}. Name a run's directory, such as"
                " outputs/decoder/2026-11-20_12-00-00."
            )
        config = read_config(run_dir)
        check_parts(run_dir, parts, PARTS_WAY)
        if (done := summary.read(run_dir)) is not None and not done.get("stopped"):
            _check_config(run_dir, config, done)
            print(
                f"The run in {run_dir} is finished: {done['steps']:,} steps. Nothing is left to do."
            )
            return 0
        import_parts(parts, GROUPS.values())
        if faults := check(config) or [*run_faults(config)]:
            raise ConfigError(f"{run_dir}: {fault}" for fault in faults)
        return _go(config, run_dir, parts, job=False, quiet=False)
    except (Ended, ConfigError) as error:
        return tell(error)


def _check_config(run_dir: Path, config: dict[str, Any], done: dict[str, Any]) -> None:
    """Raises ConfigError if a finished run's config.yaml is not the one that its checkpoint holds.

    A checkpoint may have gigabytes, so that it is read only if the hash in summary.json differs,
    which that of an earlier version does too. A run without a checkpoint that can be read is
    finished all the same.
    """
    if done.get("config_hash") == config_hash(config):
        return
    try:
        found = newest(run_dir / "checkpoints", ("global_step", "config"))
    except NoRun:
        return
    if found is not None:
        check_unchanged(run_dir, config, found[1])


def _check_places(run_dir: Path) -> None:
    """Raises NoRun if a directory is where a run writes a file, or a file where its directory of
    checkpoints is to be.
    """
    if path := next((run_dir / name for name in WRITTEN if (run_dir / name).is_dir()), None):
        raise NoRun(
            f"{path}: must be a file, which the run writes anew; got a directory. Move it away."
        )
    if (folder := run_dir / "checkpoints").is_file():
        raise NoRun(
            f"{folder}: must be a directory, which holds the checkpoints; got a file. Move it away."
        )


def _go(
    config: dict[str, Any], run_dir: Path, parts: tuple[str, ...], job: bool, quiet: bool
) -> int:
    _check_places(run_dir)
    if workers.joined():
        return train(run_dir, parts, quiet)
    count, machines = workers.device_count(config["trainer"]), config["trainer"].get("num_nodes", 1)
    if machines > 1:
        raise ConfigError(
            f"trainer.num_nodes: several machines are started by torchrun or SLURM; got {machines}"
            " in one process. Try torchrun --nnodes N --nproc-per-node M train.py ..."
        )
    if job and count == 1 and forge.usable():
        return forge.launch(run_dir, parts, quiet)
    if job or count > 1:
        return workers.launch(run_dir, count, parts, quiet, job)
    return train(run_dir, parts, quiet)


def _new_directory(config: dict[str, Any], run_dir: Path, parts: tuple[str, ...]) -> None:
    """Write down what the run is. Raises NoRun where the directory holds another one already."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with workers.one_session(run_dir):  # nothing of a run that is going on is touched
        _check_places(run_dir)
        if any((run_dir / name).exists() for name in PROGRESS):
            raise NoRun(
                f"hydra.run.dir: {run_dir} holds a run with checkpoints already; nothing is"
                " overwritten. Name another directory, or go on with it:"
                f" {proposed.resume(run_dir, parts)}"
            )
        for name in LEFTOVERS:
            (run_dir / name).unlink(missing_ok=True)
        beside = run_dir / ".config.yaml.new"
        beside.write_text(config_yaml(config), encoding="utf-8")
        os.replace(beside, run_dir / "config.yaml")
        if parts:
            (run_dir / "parts.json").write_text(json.dumps(part_hashes(parts), indent=2) + "\n")


def train(run_dir: Path, parts: tuple[str, ...] = (), quiet: bool = False) -> int:
    """Train the run of a directory in this process, one of `workers.world()`; returns the exit
    code.
    """
    session = None
    try:
        with workers.one_session(run_dir):
            import_parts(parts, GROUPS.values())
            from tasks.session import Session

            config = read_config(run_dir)
            if os.environ.get(MEANT, _digest(config)) != _digest(config):
                raise NoRun(
                    f"hydra.run.dir: another process began a run in {run_dir} meanwhile. Name"
                    " another directory."
                )
            session = Session(config, run_dir, parts, quiet)
            return session.run()
    except (Ended, ConfigError, KeyboardInterrupt) as error:
        code = tell(error, run_dir, parts)
    except OSError as error:
        of_disk = error.errno in FULL | DISK
        code = (
            tell(_of_disk(error, run_dir), run_dir, parts)
            if of_disk
            else _crashed(error, run_dir, session, parts)
        )
    except CacheRemovedError:
        removed = Ended(
            "data.cache: the prepared tokens were removed during the run. They are made again."
        )
        code = tell(removed, run_dir, parts)
    except Exception as error:
        stop = _stopped(error, session)
        code = tell(stop, run_dir, parts) if stop else _crashed(error, run_dir, session, parts)
    if session is not None:
        session.close(code)
    return code


def _of_disk(error: OSError, run_dir: Path) -> Ended:
    place = error.filename or run_dir
    if error.errno in FULL:
        return Ended(f"The disk is full ({error.strerror}: {place}). Make room.")
    return Ended(f"{place}: cannot be read or written ({error.strerror}). Put that right.")


def _stopped(error: BaseException, session: Any) -> Ended | None:
    """The ending behind an error: a library that a signal interrupts may fail while it cleans
    up.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Ended):
        cause = cause.__cause__ or cause.__context__
    box = getattr(session, "box", None)
    if cause is None and isinstance(error, AttributeError) and box is not None and box.number:
        cause = Stopped(box.number, box.step)  # what the signal left half made was used
    return cause


def tell(error: BaseException, run_dir: Path | None = None, parts: tuple[str, ...] = ()) -> int:
    """One message on the first rank's screen, the rest into the log; returns the exit code.
    `parts`: the files that were typed, for the command that goes on; ended.json has none of them.
    """
    if isinstance(error, ConfigError):
        text, code = "\n".join(error.faults), CONFIG
    elif isinstance(error, KeyboardInterrupt):
        text, code = "Stopped at once; what was done since the last checkpoint is lost.", 130
    else:
        text, code = str(error), getattr(error, "code", FAILED)
    _note(run_dir, code, text, getattr(error, "step", None))
    if (
        run_dir is not None
        and code not in (CONFIG, NONFINITE)
        and "resume=" not in text
        and _keeps(run_dir)
    ):
        text += f" {_way(run_dir, parts)}"
    if workers.rank() == 0:
        print(printable(text), file=sys.stderr, flush=True)
    workers.reply(text)
    log.info("%s", text)
    return code


def _way(run_dir: Path, parts: tuple[str, ...]) -> str:
    return f"Go on with: {proposed.resume(run_dir, parts)}"


def _note(run_dir: Path | None, code: int, text: str, step: int | None = None) -> None:
    """Leave word of how a run's process ended."""
    if run_dir is not None and workers.rank() == 0:
        with contextlib.suppress(OSError):
            summary.write({"code": code, "text": text, "step": step}, run_dir / summary.ENDED)


def _keeps(run_dir: Path) -> bool:
    """Whether a run saves its state, so that one can go on with it."""
    try:
        return bool(read_config(run_dir)["trainer"].get("enable_checkpointing", True))
    except (ConfigError, KeyError):
        return True


def _crashed(error: Exception, run_dir: Path, session: Any, parts: tuple[str, ...]) -> int:
    """An error that no rule foresaw: the log has the whole story."""
    log.info(
        "%s", "".join(traceback.format_exception(error))
    )  # into the file; warnings also go to the screen
    _note(run_dir, FAILED, " ".join(traceback.format_exception_only(error)).strip())
    if workers.lost_touch(error):
        step = None if session is None else session.saved_step()
        way = (
            ""
            if step is None
            else f" The state after step {step:,} is saved. {_way(run_dir, parts)}"
        )
        print(
            f"Rank {workers.rank()} lost touch with another rank and stopped.{way}",
            file=sys.stderr,
            flush=True,
        )
    elif "out of memory" in str(error).lower():
        print(
            "Out of memory. Raise trainer.accumulate, or lower data.batch_size or model sizes."
            f" {error}",
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)
    return FAILED
