"""The run whose weights another run starts from, `init_from=RUN`: its place on the disk."""

from collections.abc import Mapping
from pathlib import Path

from xformer_kit.config.saved.run_directories import example_of_run
from xformer_kit.registry import ConfigError, Fault, Faults, Node
from xformer_kit.text.command_lines import value
from xformer_kit.text.user_path import user_path

RULE = (
    "must be a run's directory, a file in its checkpoints/, or the directory of a published model"
    " or its name on the hub"
)
FILES = ("best.ckpt", "last.ckpt", "previous.ckpt", "model.safetensors", "published.json")


def source_of(path: str) -> tuple[Path, Path | None]:
    """Returns (run directory, checkpoint file) of init_from.run: a run's directory, of which the
    first existing file of FILES counts, or one of its checkpoints; None for no checkpoint.
    """
    place = user_path(path)
    if place.suffix == ".ckpt":
        return place.parent.parent, place if place.is_file() else None
    files = (place / "checkpoints" / name for name in FILES)
    return place, next(filter(Path.is_file, files), None)


def source_faults(config: Node) -> Faults:
    """Yields the fault of a run that a new run cannot start from."""
    node = config.get("init_from")
    path = node.get("run") if isinstance(node, Mapping) else None
    if not isinstance(path, str) or not path:
        return  # null, empty or of a wrong type, which has its own fault
    from xformer_kit.hub.download import published_directory

    try:
        if published_directory(path) is not None:
            return
    except ConfigError as error:
        yield Fault("init_from.run", error.faults[0].rule, path, error.faults[0].fix)
        return
    run, checkpoint = source_of(path)
    if not (run / "config.yaml").is_file():
        yield Fault("init_from.run", RULE, path, example_of_run(path, "Try {}.", value))
    elif checkpoint is None:
        yield Fault("init_from.run", "has no checkpoint", path, "Train it first.")
