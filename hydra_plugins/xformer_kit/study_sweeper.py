"""hydra/sweeper=study: a study as a Hydra sweep, so that every Hydra launcher runs it.

Hydra imports this file whenever it starts, so what it needs is imported when a study begins.
"""

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class StudySweeper(Sweeper):
    """Hands a study's runs to the launcher."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.options = config.hydra.launcher
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from tasks.study import run_study

        return run_study(self.launcher, self.options, arguments)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="study",
    node={"_target_": f"{__name__}.StudySweeper"},
    provider="xformer_kit",
)
