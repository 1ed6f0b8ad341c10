"""The flags of a command line, which are those of hydra.main."""

import argparse
from typing import Any

import hydra

from xformer_kit.registry import ConfigError, Fault, Faults, config_error
from xformer_kit.registry.other_libraries import OTHER_OPTIONS, WITHOUT_OPTION
from xformer_kit.text.command_lines import program


def parse_flags(argv: list[str]) -> argparse.Namespace:
    """Returns Hydra's flags and the overrides, given in any order. Raises ConfigError."""
    parser = _flag_parser()

    def refuse(message: str) -> Any:
        raise config_error(" ".join(argv), message, fix=f"See {program()} --help.")

    parser.error = refuse  # type: ignore[method-assign]
    flags, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        named = [word for word in unknown if word.startswith("-")]  # without their values
        raise ConfigError(_flag_fault(flag) for flag in named or unknown)
    flags.overrides = [word for word in flags.overrides if word]
    return flags


def _flag_fault(flag: str) -> Fault:
    """Returns the fault of an unknown flag, with the override of an option that is given as one:
    --max_steps 10 is trainer.max_steps=10, --learning-rate=0.1 is optim.lr=0.1.
    """
    from xformer_kit.config.faults.check import option_paths

    name, _, value = flag.lstrip("-").partition("=")
    key = name.replace("-", "_")
    if key in WITHOUT_OPTION:
        rule, fix = WITHOUT_OPTION[key]
        return Fault(flag, rule, fix=fix)
    own = option_paths({"optim": "adamw"}).get(key, [key])[0]
    ours, _, needed = OTHER_OPTIONS.get(key, own).partition("=")
    fix = f"Options are written without dashes: {ours}={needed or value or 'VALUE'}."
    return Fault(flag, "is no flag", fix=f"{fix} See {program()} --help.")


def flag_faults(flags: argparse.Namespace) -> Faults:
    """Yields the faults of flags that hydra.main would reject, or that contradict each other."""
    for flag in ("resolve", "package"):
        if getattr(flags, flag) and not flags.cfg:
            yield Fault(f"--{flag}", "belongs to --cfg", fix="Add --cfg job.")
    exclusive = ("run", "multirun", "cfg", "info", "shell_completion")
    given = [f"--{flag.replace('_', '-')}" for flag in exclusive if getattr(flags, flag)]
    if len(given) > 1:
        yield Fault(" ".join(given), "only one of them can be given", fix="Leave the others out.")


def _flag_parser() -> argparse.ArgumentParser:
    """Returns a parser of the flags of hydra.main that are of use here, see
    hydra.cc/docs/advanced/hydra-command-line-flags.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    for names in (
        ("--help", "-h"),
        ("--hydra-help",),
        ("--resolve",),
        ("--run", "-r"),
        ("--multirun", "-m"),
        ("--shell-completion", "-sc"),
    ):
        parser.add_argument(*names, action="store_true")
    for names in (
        ("--package", "-p"),
        ("--config-name", "-cn"),
        ("--config-dir", "-cd"),
    ):
        parser.add_argument(*names)
    parser.add_argument("--version", action="version", version=f"Hydra {hydra.__version__}")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    about = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=about)
    return parser
