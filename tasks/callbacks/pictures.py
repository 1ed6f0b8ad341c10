"""Pictures of masks, biases and attention weights during training, in pictures/ and for the
logger.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.generation.attention_picture import attention_picture
from tasks.refusal import refusal
from xformer_kit.config.callbacks import Pictures as Options
from xformer_kit.data import collate
from xformer_kit.data.batch import mapped
from xformer_kit.inspect import plot_bias, plot_mask
from xformer_kit.inspect.weights import Seen, watched


class AttentionPictures:
    """Draws at the start, every so many steps, and at the end. All ranks make the forward pass, and
    the first one draws.
    """

    def __init__(self, options: Options, cadence: Cadence, run_dir: Path, tell: Any, first: bool):
        if find_spec("matplotlib") is None:
            raise refusal(
                "callbacks.pictures",
                "needs the package matplotlib",
                got="none",
                fix='Use pip install "xformer_kit[study]".',
            )
        self.options = options
        self.cadence = cadence
        self.folder = run_dir / "pictures"
        self.tell = tell
        self.first = first

    def on_train_start(self, trainer: Any, task: Task) -> None:
        if task.step == 0:
            if "mask" in self.options.of:
                self._keep("mask", task.step, lambda: plot_mask(task.model, self.options.length))  # type: ignore[arg-type]
            self._draw(task)

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.options.every == 0 or self.cadence.ends(task.step):
            self._draw(task)

    def _draw(self, task: Task) -> None:
        if "bias" in self.options.of:
            self._keep("bias", task.step, lambda: plot_bias(task.model, self.options.length))  # type: ignore[arg-type]
        if "attention" in self.options.of:
            seen, how = self._seen(task), self.options
            draw = lambda: attention_picture(
                task.model, task.objective, seen, how.length, how.heads
            )
            self._keep("attention", task.step, draw)

    def _seen(self, task: Task) -> dict[str, Seen]:
        device = next(task.model.parameters()).device
        batch: Any = mapped(collate([task.data.examples("valid")[0]]), lambda x: x.to(device))
        with task.sampling():
            act = lambda: task.objective.loss(task.model, batch)
            return watched(task.model, act, self.options.layers, self.options.heads)  # type: ignore[arg-type]

    def _keep(self, name: str, step: int, draw: Any) -> None:
        if not self.first:
            return
        self.folder.mkdir(exist_ok=True)
        path = draw().save(self.folder / f"{name}_{step:06d}.png")
        self.tell.picture(f"pictures/{name}", path, step)
