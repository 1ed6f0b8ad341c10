"""A gate: python train.py components=[docs/examples/tanh_gate.py] attn.gate=tanh"""

import torch
from torch import nn

from xformer_kit.attention import GATES, Gate
from xformer_kit.tensors import vector


@GATES.register("tanh")
class TanhGate(Gate):
    """tanh(a) y, the output of the attention times a learned number, 0 at the start (Flamingo:
    Alayrac et al., 2022, arXiv:2204.14198, section 2.2).
    """

    parameter_info = {"factor": vector("1", shared_by_heads=True)}

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.zeros(1))

    def after(self, x, out, y):
        return torch.tanh(self.factor) * y
