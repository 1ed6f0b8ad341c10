"""Speed of three ways to compute a linear layer for few rows.

    python -m benchmarks.products [--threads 2] [--save]

For matrices of several shapes and 1 to 512 rows: x W^T as in torch.nn.functional.linear,
against (W x^T)^T, and against x W^T with W stored column-major. Above 1, the other way is faster.
Each shape has several matrices, because generation reads a different one each time.
`xformer_kit/tensors/fused_projections.py` uses these figures.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.measure import machine, ratio, rounds, save

SHAPES = [
    (256, 256),
    (256, 768),
    (256, 1024),
    (1024, 256),
    (384, 1536),
    (1536, 384),
    (768, 3072),
    (256, 8000),
]
ROWS = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 512)
FILL = 6_000_000  # numbers in the matrices of one shape together


def turned(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = torch.mm(weight, x.t()).t()
    return torch.add(y, bias, out=x.new_empty(y.shape))


def orders(inputs: int, outputs: int, rows: int) -> dict[str, Callable[[], None]]:
    count = max(2, FILL // (inputs * outputs))
    plain = [torch.randn(outputs, inputs) for _ in range(count)]
    columns = [weight.t().contiguous() for weight in plain]
    bias, x = torch.randn(outputs), torch.randn(rows, inputs)
    return {
        "x W^T": lambda: [linear(x, weight, bias) for weight in plain] and None,
        "(W x^T)^T": lambda: [turned(x, weight, bias) for weight in plain] and None,
        "W by columns": lambda: [torch.addmm(bias, x, weight) for weight in columns] and None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/products.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    figures = []
    print("inputs outputs rows   (W x^T)^T   W by columns")
    for inputs, outputs in SHAPES:
        for rows in ROWS:
            with torch.inference_mode():
                first, *others = rounds(orders(inputs, outputs, rows), options.rounds).values()
            found = [ratio(first, other) for other in others]
            figures.append(
                {
                    "inputs": inputs,
                    "outputs": outputs,
                    "rows": rows,
                    "turned": found[0],
                    "columns": found[1],
                }
            )
            print(
                f"{inputs:6d} {outputs:7d} {rows:4d}   {found[0]:9.2f}   {found[1]:12.2f}",
                flush=True,
            )
    if options.save:
        print(f"written to {save('products', machine(options.threads), figures)}")


if __name__ == "__main__":
    main()
