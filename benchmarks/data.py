"""Speed and memory of preparing and reading text.

    python -m benchmarks.data [--megabytes 100] [--repeat 3] [--save]

Each preparation runs in its own process with an empty cache. Memory is the peak of the resident
set, with and without that of importing torch.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def write_text(path: Path, megabytes: float) -> None:
    """Writes lines of English letters with some two-byte characters; always the same text."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwygpbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(20_000)] + [
        "é",
        "naïve",
    ]
    line = "\n".join(" ".join(draw.choices(words, k=12)) for _ in range(2_000)) + "\n"
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(max(1, int(megabytes * 1e6 / len(line.encode())))):
            file.write(line)


def peak() -> float:
    """Returns the largest resident set of this process so far, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(path: str, cache: str, tokenizer: str) -> dict[str, float]:
    """Prepares the text in this process. Returns seconds after imports, and memory in MB."""
    from xformer_kit.data import prepare

    imported = peak()
    start = time.perf_counter()
    config = {
        "data": {"name": "text", "path": path, "seq_len": 256, "batch_size": 16, "cache": cache},
        "tokenizer": {"name": tokenizer},
    }
    data = prepare(config)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "memory": peak(),
        "above_imports": peak() - imported,
        "tokens": data.train.tokens,
    }


def measure_reading(path: str, cache: str) -> float:
    """Returns tokens per second of collated batches in the order of training, on one core."""
    from xformer_kit.data import Examples, collate, prepare
    from xformer_kit.data.order import GlobalBatches
    from xformer_kit.data.preparation.training_data import StepSampler

    data = {"name": "text", "path": path, "seq_len": 256, "batch_size": 64, "cache": cache}
    windows = prepare({"data": data, "tokenizer": {"name": "byte"}}).train
    steps, examples = (
        StepSampler(GlobalBatches(len(windows), 64, seed=0), stop=2_000),
        Examples(windows, None, seed=0),
    )
    rates = []
    for _ in range(3):
        start, count = time.perf_counter(), 0
        for indices in steps:
            count += collate([examples[i] for i in indices])["tokens"].ids.numel()  # type: ignore[union-attr]
        rates.append(count / (time.perf_counter() - start))
    return median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--tokenizers", nargs="+", default=["byte", "char"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/data.json")
    parser.add_argument(
        "--one", nargs=3, metavar=("PATH", "CACHE", "TOKENIZER"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    found = compare(options.megabytes, options.tokenizers, options.repeat)
    if options.save:
        from benchmarks.measure import (
            machine,
            save,
        )  # brings torch, which a preparation must not find imported

        about = machine() | {"megabytes": options.megabytes, "repeat": options.repeat}
        print(f"written to {save('data', about, found)}")


def compare(megabytes: float, tokenizers: list[str], repeat: int) -> dict:
    """Returns the medians of each tokenizer's preparations, the time of reading the cache, and the
    rate of batches.
    """
    found: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "text.txt"))
        write_text(Path(path), megabytes)
        print(f"{Path(path).stat().st_size / 1e6:.0f} MB of text")
        for tokenizer in tokenizers:
            runs = []
            for i in range(repeat):
                given = [path, f"{folder}/cache-{tokenizer}-{i}", tokenizer]
                command = [sys.executable, "-m", "benchmarks.data", "--one", *given]
                runs.append(
                    json.loads(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    )
                )
            at = found[tokenizer] = {key: median(run[key] for run in runs) for key in runs[0]}
            print(
                f"prepare, {tokenizer}: {at['seconds']:.2f} s, {at['memory']:.0f} MB of memory at"
                f" its peak, {at['above_imports']:.0f} MB above imports"
            )
        again = measure(path, f"{folder}/cache-{tokenizers[0]}-0", tokenizers[0])
        found["seconds_from_the_cache"] = again["seconds"]
        print(f"prepare again, from the cache: {again['seconds'] * 1000:.1f} ms")
        found["tokens_read_per_second"] = measure_reading(path, f"{folder}/read")
        print(f"reading batches: {found['tokens_read_per_second'] / 1e6:.0f} million tokens/s")
    return found


if __name__ == "__main__":
    main()
