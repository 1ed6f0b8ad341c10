"""The flags of a command line, which are those of hydra.main."""

import argparse
from typing import Any

import hydra

from xformer_kit.registry import config_error
from xformer_kit.registry.command_lines import program


def parse_flags(argv: list[str]) -> argparse.Namespace:
    """Returns Hydra's flags and the overrides, given in any order. Raises ConfigError."""
    parser = _flag_parser()

    def refuse(message: str) -> Any:
        raise config_error(" ".join(argv), message, fix=f"See {program()} --help.")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_intermixed_args(argv)
    flags.overrides = [word for word in flags.overrides if word]
    return flags


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
