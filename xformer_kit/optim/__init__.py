"""Optimizers and schedules of the learning rate."""

from xformer_kit.optim.optimizers import OPTIMIZERS, parameter_groups
from xformer_kit.optim.schedules import SCHEDULES, Schedule
