"""Checks all laws for compositions that the tests do not cover.

python -m xformer_kit.laws --random 2000 --seed 7     random compositions of all components
python -m xformer_kit.laws attn=latent mask=chunked   one composition, e.g. one that breaks a law
"""

import argparse
import sys

from xformer_kit.laws.random_compositions import broken_laws, check_random_compositions
from xformer_kit.registry import ConfigError


def check_one(overrides: list[str]) -> int:
    """Prints the laws that one composition breaks. Returns the exit code."""
    from xformer_kit.config import compose

    messages = broken_laws(compose(["logger=none", *overrides]))
    print(*(messages or ["every law is kept"]), sep="\n")
    return int(bool(messages))


def main(argv: list[str]) -> int:
    """Runs the command. Returns the exit code: 1 if a law is broken, 2 if a config is refused."""
    parser = argparse.ArgumentParser(
        "python -m xformer_kit.laws",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", help="overrides of one composition")
    parser.add_argument("--random", type=int, metavar="N", help="number of random compositions")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random compositions")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(argv)
    if args.random is not None:
        return int(check_random_compositions(args.random, args.seed, args.processes) > 0)
    try:
        return check_one(args.overrides)
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
