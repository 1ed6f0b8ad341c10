"""How fast is text prepared and read, and in how much memory? Run: python benchmarks/data.py [--megabytes 100]

Each preparation is a process of its own with an empty cache; memory is the peak of the resident set, with and without
what importing torch takes.
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
    """Words of English letters with some two-byte characters, in lines; the same each time."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwygpbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(20_000)] + ["é", "naïve"]
    line = "\n".join(" ".join(draw.choices(words, k=12)) for _ in range(2_000)) + "\n"
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(max(1, int(megabytes * 1e6 / len(line.encode())))):
            file.write(line)


def peak() -> float:
    """Largest resident set of this process so far, MB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(path: str, cache: str, tokenizer: str) -> dict[str, float]:
    """One preparation in this process: seconds after imports, memory in MB."""
    from xformer_kit.data import prepare

    imported = peak()
    start = time.perf_counter()
    config = {
        "data": {"name": "text", "path": path, "seq_len": 256, "batch_size": 16, "cache": cache},
        "tokenizer": {"name": tokenizer},
    }
    data = prepare(config)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "memory": peak(), "above_imports": peak() - imported, "tokens": data.train.tokens}


def measure_reading(path: str, cache: str) -> float:
    """Tokens per second of collated batches in the order of training, on one core."""
    from xformer_kit.data import collate, prepare
    from xformer_kit.data.order import GlobalBatches, MicroBatches

    data = {"name": "text", "path": path, "seq_len": 256, "batch_size": 64, "cache": cache}
    windows = prepare({"data": data, "tokenizer": {"name": "byte"}}).train
    batches = MicroBatches(GlobalBatches(len(windows), 64, seed=0), start=0, stop=2_000)
    rates = []
    for _ in range(3):
        start, count = time.perf_counter(), 0
        for indices in batches:
            count += collate([windows[i] for i in indices])["tokens"].ids.numel()  # type: ignore[union-attr]
        rates.append(count / (time.perf_counter() - start))
    return median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--tokenizers", nargs="+", default=["byte", "char"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("PATH", "CACHE", "TOKENIZER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "text.txt"))
        write_text(Path(path), options.megabytes)
        print(f"{Path(path).stat().st_size / 1e6:.0f} MB of text")
        for tokenizer in options.tokenizers:
            runs = []
            for i in range(options.repeat):
                command = [sys.executable, __file__, "--one", path, f"{folder}/cache-{tokenizer}-{i}", tokenizer]
                runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            at = {key: median(run[key] for run in runs) for key in runs[0]}
            print(
                f"prepare, {tokenizer}: {at['seconds']:.2f} s, {at['memory']:.0f} MB of memory at its peak, "
                f"{at['above_imports']:.0f} MB above imports"
            )
        again = measure(path, f"{folder}/cache-{options.tokenizers[0]}-0", options.tokenizers[0])
        print(f"prepare again, from the cache: {again['seconds'] * 1000:.1f} ms")
        print(f"reading batches: {measure_reading(path, f'{folder}/read') / 1e6:.0f} million tokens/s")


if __name__ == "__main__":
    main()
