"""callbacks.pictures: masks, biases and attention weights during training, in pictures/ and in the
logger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.callbacks.cadence import Cadence
from tasks.generation.attention_picture import attention_picture
from tasks.generation.decoding import batch_to_device
from tasks.modules.evaluation import EvaluatedTask as Task
from tasks.process.command_faults import faults_at
from xformer_kit.config.options.callbacks import Pictures as Options
from xformer_kit.inspect import plot_bias, plot_mask
from xformer_kit.inspect.attention_record import AttentionRecord, record_attention
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import require_matplotlib
from xformer_kit.model.sharding import whole_parameters


@dataclass(eq=False)
class AttentionPictures:
    """Draws at the start, every `options.every` steps, and at the end. All ranks compute the
    attention weights; rank 0 draws.
    """

    options: Options
    cadence: Cadence
    run_dir: Path
    logger: Any
    draws: bool  # on rank 0

    def __post_init__(self) -> None:
        with faults_at("callbacks.pictures"):
            require_matplotlib()

    def on_train_start(self, trainer: Any, task: Task) -> None:
        if task.step == 0:
            self._draw(task, ("mask", "bias", "attention"))

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.options.every == 0 or self.cadence.is_last(task.step):
            self._draw(task, ("bias", "attention"))

    def _draw(self, task: Task, kinds: tuple[str, ...]) -> None:
        options, model = self.options, task.model
        functions: dict[str, Callable[[], Picture]] = {
            "mask": lambda: plot_mask(model, options.length),  # type: ignore[arg-type]
            "bias": lambda: plot_bias(model, options.length),  # type: ignore[arg-type]
            "attention": lambda: attention_picture(task, weights, options.length, options.heads),
        }
        if "attention" in options.of:
            weights = self._attention_weights(task)
        for kind in kinds:
            if kind in options.of and (self.draws or task.is_sharded):
                with whole_parameters(model):
                    picture = functions[kind]()
                if not self.draws:
                    continue
                folder = self.run_dir / "pictures"
                folder.mkdir(exist_ok=True)
                path = picture.save(folder / f"{kind}_{task.step:06d}.png")
                self.logger.picture(f"pictures/{kind}", path, task.step)

    def _attention_weights(self, task: Task) -> dict[str, AttentionRecord]:
        """Returns the attention weights of the first validation example."""
        batch = batch_to_device(task.device, [task.data.examples("valid")[0]])
        with task.sampling():
            model: Any = task.model
            forward = lambda: task.objective.loss(model, batch)
            return record_attention(model, forward, self.options.layers, self.options.heads)
