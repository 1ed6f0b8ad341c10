"""Optimizers and schedules of the learning rate."""

from xformer_kit.optim import adam, muon
from xformer_kit.optim.combined import Combined
from xformer_kit.optim.common import (
    beta_faults,
    library,
    library_faults,
    per_input,
    rate_faults,
    skipped,
    uses_fused,
)
from xformer_kit.optim.create import (
    averages_weights,
    create_optimizer,
    parameter_groups,
    rates,
    set_rate,
)
from xformer_kit.optim.grouping import OPTIMIZERS, OptimizerAttributes
from xformer_kit.optim.schedules import SCHEDULES, Schedule
