"""A callback: python train.py components=[docs/examples/weight_norm.py]
callbacks.weight_norm.every=10
"""

import torch
from lightning.pytorch import Callback

from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.registry import at_least


@CALLBACKS.register("weight_norm")
class WeightNorm(Callback):
    """Logs the norm of all parameters, sqrt(sum w^2), whose growth lowers the effective learning
    rate (van Laarhoven, 2017, arXiv:1706.05350, section 3).
    """

    def __init__(self, *, every: int = 100):  # optimizer steps
        self.every = every

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "step", every=1)

    @torch.no_grad()
    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        if task.step % self.every == 0:
            norms = torch._foreach_norm(list(task.model.parameters()))
            trainer.logger.log_metrics({"weight_norm": float(torch.stack(norms).norm())})
