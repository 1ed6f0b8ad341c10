"""The flags of a command line, which are those of hydra.main."""

import argparse
from typing import Any

import hydra

from xformer_kit.registry import ConfigError, Fault, Faults, config_error
from xformer_kit.registry.other_libraries import OTHER_OPTIONS, WITHOUT_OPTION
from xformer_kit.text.command_lines import for_shell, program


def parse_flags(argv: list[str]) -> argparse.Namespace:
    """Returns Hydra's flags and the overrides, given in any order. Raises ConfigError."""
    parser = _flag_parser()
    # argparse would take --config for the beginning of several flags.
    if given := [word for word in argv if word.partition("=")[0] == "--config"]:
        after = [given[0].partition("=")[2], *argv[argv.index(given[0]) + 1 :], "FILE.yaml"]
        file = next(filter(None, after))
        fix = f"Try {for_shell(f'experiment={file}')}."
        raise config_error("--config", "is no flag", file, fix)

    def refuse(message: str) -> Any:
        raise config_error(" ".join(argv), message, fix=f"See {program()} --help.")

    parser.error = refuse  # type: ignore[method-assign]
    flags, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        named = [word for word in unknown if word.startswith("-")]  # without their values
        raise ConfigError(_flag_fault(flag, argv) for flag in named or unknown)
    flags.overrides = [word for word in flags.overrides if word]
    return flags


def _flag_fault(flag: str, argv: list[str]) -> Fault:
    """Returns the fault of an unknown flag."""
    key = flag.lstrip("-").partition("=")[0].replace("-", "_")
    if key in WITHOUT_OPTION:
        rule, fix = WITHOUT_OPTION[key]
        return Fault(flag, rule, fix=fix)
    fix = f"Options are written without dashes: {_as_override(flag, argv)}."
    return Fault(flag, "is no flag", fix=f"{fix} See {program()} --help.")


def flag_faults(flags: argparse.Namespace) -> Faults:
    """Yields the faults of flags that hydra.main would reject, or that contradict each other."""
    if flags.config_path is not None:
        yield Fault(
            "--config-path",
            "would replace the configs of this package",
            got=flags.config_path,
            fix=f"Add your own: --config-dir {for_shell(flags.config_path)}.",
        )
    if flags.experimental_rerun is not None:
        yield Fault(
            "--experimental-rerun",
            "is not supported",
            got=flags.experimental_rerun,
            fix="Continue a run with resume=RUN, or train it again with xformer reproduce RUN.",
        )
    for flag in ("resolve", "package"):
        if getattr(flags, flag) and not flags.cfg:
            value = "" if flags.package is None else f" {for_shell(flags.package)}"
            typed = f"--{flag}{value if flag == 'package' else ''}"
            yield Fault(f"--{flag}", "belongs to --cfg", fix=f"Try --cfg job {typed}.")
    exclusive = ("run", "multirun", "cfg", "info", "shell_completion")
    given = [f"--{flag.replace('_', '-')}" for flag in exclusive if getattr(flags, flag)]
    if len(given) > 1:
        yield Fault(" ".join(given), "only one of them can be given", fix="Leave the others out.")


def _as_override(flag: str, argv: list[str]) -> str:
    """Returns the override for an option given as a flag: --max_steps 10 is trainer.max_steps=10,
    --learning-rate=0.1 is optim.lr=0.1.
    """
    from xformer_kit.config.faults.check import option_paths

    key, _, value = flag.lstrip("-").partition("=")
    after = argv[argv.index(flag) + 1 :] if flag in argv else []
    if not value:
        value = next((w for w in after[:1] if "=" not in w and not w.startswith("-")), "VALUE")
    key = key.replace("-", "_")
    own = option_paths({"optim": "adamw"}).get(key, [key])[0]
    ours, _, needed = OTHER_OPTIONS.get(key, own).partition("=")
    return f"{ours}={needed or value}"


def _flag_parser() -> argparse.ArgumentParser:
    """Returns a parser of the flags of hydra.main, see
    hydra.cc/docs/advanced/hydra-command-line-flags.
    """
    parser = argparse.ArgumentParser(add_help=False)
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
        ("--config-path", "-cp"),
        ("--config-name", "-cn"),
        ("--config-dir", "-cd"),
        ("--experimental-rerun",),
    ):
        parser.add_argument(*names)
    parser.add_argument("--version", action="version", version=f"Hydra {hydra.__version__}")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    about = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=about)
    return parser
