"""Let a run's model go on with a text. It is written to stdout as it comes, the prompt first."""

import sys
from typing import Any

from tasks.cli.command import load_run

SUMMARY = "let a run's model go on with a text"
EXAMPLES = """examples:
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt "The "
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt - --temperature 0 < prompt.txt"""


def options(parser: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's directory")
    parser.add_argument("--prompt", metavar="TEXT", required=True, help="the text to go on with; - reads it from stdin")
    parser.add_argument("--max-new-tokens", type=int, default=200, metavar="N", help="tokens to write (200)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="divides the logits; 0 takes the likeliest token (1.0)",
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    parser.add_argument(
        "--top-p", type=float, metavar="P", help="draw from the likeliest tokens that have probability P together"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed draws the same text")
    parser.add_argument("--num-samples", type=int, default=1, metavar="N", help="texts, drawn one after another (1)")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="which weights (best, where there is one)")


def run(args: Any) -> int:
    from xformer_kit.registry import ConfigError

    if args.num_samples < 1:
        raise ConfigError(f"--num-samples: must be at least 1; got {args.num_samples}.")
    if args.seed is not None and not 0 <= args.seed < 2**63:
        raise ConfigError(f"--seed: must be at least 0 and below 2^63; got {args.seed}.")
    prompt = _prompt(args.prompt)
    model, ids = _ready(args, prompt)
    from xformer_kit.generate import stream

    drawn = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
    for i in range(args.num_samples):
        seed = None if args.seed is None else args.seed + i
        tokens = stream(model, ids, args.max_new_tokens, seed=seed, **drawn)
        if i:
            _write("-" * 8 + "\n")
        _write(prompt)
        decode = model.tokenizer.stream()
        for token in tokens:
            _write(decode(token.tolist()))
        _write(decode.end() + "\n")
    return 0


def _prompt(given: str) -> str:
    """The text of --prompt, or of stdin without its last line end. Raises ConfigError for an empty one."""
    from xformer_kit.registry import ConfigError

    text = given if given != "-" else sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removesuffix("\n")
    if not text:
        raise ConfigError('--prompt: must hold at least one character; got an empty text. Try --prompt "The ".')
    return text


def _ready(args: Any, prompt: str) -> tuple[Any, Any]:
    """The model and the prompt's ids (1, t), on the device. Raises ConfigError for characters that are not known."""
    import torch

    from tasks.cli.command import open_run
    from xformer_kit.registry import ConfigError

    path, _ = open_run(args.run, args.parts)
    checkpoint = args.checkpoint or ("best" if (path / "checkpoints" / "best.ckpt").is_file() else "last")
    model, _, _ = load_run(args.run, args.parts, checkpoint)
    try:
        encoded = model.tokenizer.encode(prompt)
    except ConfigError as error:
        raise ConfigError(fault.replace("tokenizer:", "--prompt:", 1) for fault in error.faults) from None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device), torch.tensor([[int(i) for i in encoded]], device=device)


def _write(text: str) -> None:
    """Text as utf-8, whatever the locale; bytes of the prompt that were no utf-8 come out as they went in."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
