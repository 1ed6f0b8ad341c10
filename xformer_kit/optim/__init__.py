"""Optimizers and schedules of the learning rate."""

from xformer_kit.optim.optimizers import (
    OPTIMIZERS,
    parameter_groups,
)
