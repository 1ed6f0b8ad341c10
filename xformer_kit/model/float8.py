"""Matrix products in 8 bits: trainer.precision=fp8-mixed."""

from typing import Any

from torch import nn

MULTIPLE = 16  # of both sizes of a matrix, which 8-bit products need


def use_float8(model: nn.Module, **options: Any) -> list[str]:
    """Computes the products of hidden linear maps in 8 bits: those of inputs and weights in E4M3,
    those of gradients in E5M2, each tensor with one factor of its own, which is found in each step
    (Micikevicius et al., 2022, arXiv:2209.05433, sections 3 and 4).

    Weights, their names and the optimizer's state stay in fp32. What is no torch.nn.Linear
    (embeddings, the head, routers, maps with an adapter), and maps whose sizes are no multiples of
    MULTIPLE, are computed in bf16. The modules are replaced by those of torchao. Returns their
    names. options: of torchao's Float8LinearConfig.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    chosen = [
        name
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not any(size % MULTIPLE for size in module.weight.shape)
    ]
    convert_to_float8_training(
        model,
        module_filter_fn=lambda _, name: name in chosen,
        # The number of tokens need not be a multiple.
        config=Float8LinearConfig(pad_inner_dim=True, **options),
    )
    return chosen
