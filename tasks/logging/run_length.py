"""The length of a run in words."""

from tasks import Facts
from xformer_kit.data.run_length import step_tokens
from xformer_kit.optim.schedules import warmup_steps
from xformer_kit.study.numbers import compact


def format_length(config: Facts, steps: int, steps_per_epoch: int | None = None) -> str:
    """Returns the optimizer steps of a run with what they are in tokens, and in passes over the
    data if the steps of a pass are known; with a warm-up that is a share of them in steps.
    """
    length = "1 step" if steps == 1 else f"{steps:,} steps"
    tokens = f"{compact(steps * step_tokens(config['data']))} tokens"
    passes = [f"{steps / steps_per_epoch:.3g} epochs"] if steps_per_epoch else []
    warmup = config["schedule"].get("warmup")
    shares = [f"warm-up {warmup_steps(warmup, steps):,}"] if isinstance(warmup, float) else []
    return f"{length} ({', '.join([tokens, *passes, *shares])})"
