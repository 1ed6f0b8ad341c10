"""What training a run again needs: its command line, and the differences between then and now."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tasks import Config, Facts, Metrics
from tasks.logging import summary
from tasks.logging.files import numbered
from tasks.run.processes import import_environment
from tasks.run.to_overrides import override_value, to_overrides
from xformer_kit.config import compose, config_hash
from xformer_kit.config.saved import component_hashes
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.study.run_key import codes

HOME = Path("outputs", "reproduced")


def words(config: Facts, components: list[str], directory: Path) -> list[str]:
    """Arguments of `python train.py` that train a config again in a directory. Raises ConfigError
    if no command line of this version composes it, or if this version rejects it.
    """
    own = [f"components={override_value(components)}"] if components else []
    given = to_overrides(config)
    compose(given, data=False)
    return [*own, *given, f"hydra.run.dir={override_value(str(directory))}"]


def free(run: Path) -> Path:
    """A directory that is not there yet, named after the run."""
    places = numbered(HOME / run.resolve().name)
    return next(place for place in places if not place.exists())


def differences(config: Config, facts: Facts, components: list[str]) -> Iterator[str]:
    """Sentences on what is not as it was when the run was trained: config, data, code, versions,
    device.
    """
    if (now := config_hash(config)) != facts["config_hash"]:
        yield (
            f"config: its hash was {facts['config_hash']} and is {now}: config.yaml was changed"
            " since, or this version has settings that came later."
        )
    yield from _data(config, facts["data_fingerprint"])
    yield from _code(config, facts, components)
    here = summary.versions()
    for name, then in facts["versions"].items():
        if here.get(name) != then:
            yield f"versions.{name}: was {then}, and is {here.get(name, 'not installed')}."
    yield from _device(config, facts)
    if facts.get("stopped"):
        yield (
            f"trainer: the run ended before its last step, {facts['stopped']}; another may end"
            " elsewhere."
        )


def _data(config: Config, then: str) -> Iterator[str]:
    from xformer_kit.data import prepare

    try:
        now = prepare(config).fingerprint
    except ConfigError as error:
        yield from error.messages
        return
    if now != then:
        yield (
            f"data: its fingerprint was {then[:16]} and is {now[:16]}: the text or its tokens are"
            " others."
        )


def _code(config: Facts, facts: Facts, components: list[str]) -> Iterator[str]:
    mine = component_hashes(components)
    yield from (
        f"components: {name} was changed since the run."
        for name, digest in facts["components"].items()
        if mine.get(name) != digest
    )
    if "code" not in facts:
        yield (
            "code: the run did not note the code of its components, so it is not known whether that"
            " was changed since."
        )
        return
    now = codes(config)
    for module in sorted({*facts["code"], *now}):
        if facts["code"].get(module) != now.get(module):
            yield f"code: {module} was changed since the run."


def _device(config: Facts, facts: Facts) -> Iterator[str]:
    import torch

    then = facts["devices"]["kind"].partition(":")[0]
    gpu = config["trainer"]["accelerator"] in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if then != (now := "cuda" if gpu else "cpu"):
        yield f"device: was {then}, and is {now}: sums are rounded in another order."


def train(given: list[str], aside: bool) -> int:
    """Train with these arguments in another process, and return its exit code. `aside`: its output
    goes to stderr.
    """
    # Never a train.py of the current directory, which may be a run's.
    script = Path(__file__).resolve().parents[2] / "train.py"
    if not script.is_file():
        raise config_error(
            "--run",
            "needs train.py of a checkout",
            f"none at {script}",
            "Type the command yourself.",
        )
    line = [sys.executable, str(script), *given]
    return subprocess.run(
        line, env=os.environ | import_environment(), stdout=2 if aside else None
    ).returncode


def figures(facts: Facts) -> Metrics:
    """What came of a run: steps and all final metrics."""
    return {"steps": facts["steps"], **summary.final_metrics(facts)}


def verdict(then: float | None, now: float | None) -> str:
    """Whether a figure came out the same."""
    if then is None or now is None:
        was, is_ = ("missing" if figure is None else repr(figure) for figure in (then, now))
        return f"was {was}, and is {is_}"
    if then == now or (math.isnan(then) and math.isnan(now)):
        return f"{now!r}, equal to the last digit"
    share = f", {100 * abs(now - then) / abs(then):.2g} %" if then else ""
    return f"was {then!r}, and is {now!r}: off by {abs(now - then):.3g}{share}"
