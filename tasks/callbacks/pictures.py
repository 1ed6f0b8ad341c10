"""Pictures of masks, biases and attention weights during training, in pictures/ and for the
logger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.run.generation.attention_picture import attention_picture
from tasks.run.generation.decoding import batch_to_device
from xformer_kit.config.callbacks import Pictures as Options
from xformer_kit.inspect import plot_bias, plot_mask
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.weights import AttentionRecord, record_attention
from xformer_kit.registry import config_error


@dataclass(eq=False)
class AttentionPictures:
    """Draws at the start, every so many steps, and at the end. All ranks make the forward pass, and
    the first one draws.
    """

    options: Options
    cadence: Cadence
    run_dir: Path
    logger: Any
    first: bool

    def __post_init__(self) -> None:
        if find_spec("matplotlib") is None:
            raise config_error(
                "callbacks.pictures",
                "needs the package matplotlib",
                "none",
                'Use pip install "xformer_kit[study]".',
            )

    def on_train_start(self, trainer: Any, task: Task) -> None:
        if task.step == 0:
            self._draw(task, "mask")

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.options.every == 0 or self.cadence.ends(task.step):
            self._draw(task)

    def _draw(self, task: Task, *more: str) -> None:
        how, model = self.options, task.model
        pictures: dict[str, Callable[[], Picture]] = {
            "mask": lambda: plot_mask(model, how.length),  # type: ignore[arg-type]
            "bias": lambda: plot_bias(model, how.length),  # type: ignore[arg-type]
            "attention": lambda: attention_picture(task, seen, how.length, how.heads),
        }
        if "attention" in how.of:
            seen = self._seen(task)
        for name in (*more, "bias", "attention"):
            if name in how.of and self.first:
                folder = self.run_dir / "pictures"
                folder.mkdir(exist_ok=True)
                path = pictures[name]().save(folder / f"{name}_{task.step:06d}.png")
                self.logger.picture(f"pictures/{name}", path, task.step)

    def _seen(self, task: Task) -> dict[str, AttentionRecord]:
        batch = batch_to_device(task.device, [task.data.examples("valid")[0]])
        with task.sampling():
            model: Any = task.model
            act = lambda: task.objective.loss(model, batch)
            return record_attention(model, act, self.options.layers, self.options.heads)
