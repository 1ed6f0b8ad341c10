"""The likelihood of a text under a run's model: of its validation split, or of another text."""

from typing import Any

from tasks import State
from tasks.cli.given_text import given_windows
from tasks.generation.decoding import batch_to_device, device_of, in_precision
from tasks.modules.configured_metrics import create_metrics
from tasks.modules.split_metrics import Likelihood, SplitMetrics
from xformer_kit.data import Examples, prepare
from xformer_kit.data.batch import map_tensors
from xformer_kit.data.preparation.training_data import (
    TrainingData,
    check_fingerprint,
    set_tokenizers,
)
from xformer_kit.inspect.memory import micro_batch
from xformer_kit.metrics import of_split
from xformer_kit.objective import summed_loss


def validation_likelihood(run: Any, batch_size: int | None = None) -> State:
    """Returns val/loss, val/perplexity, val/bits_per_byte and the metrics of predictions that the
    config names, and the number of tokens, or of texts if the loss is that of a text.

    Raises ConfigError if the data are not those of the run.
    """
    prepared, device = prepare(run.config), device_of(run)
    check_fingerprint(run.data_fingerprint, prepared.fingerprint)
    objective = set_tokenizers(run.objective, prepared, run.path)
    data = TrainingData(run.config, prepared, objective)
    rows = batch_size or micro_batch(run.config)[0]
    batches = zip(data.valid_batches(rows), data.valid_loader(rows, device), strict=True)
    with in_precision(run) as model:
        metrics = create_metrics(run.config, objective.num_classes(model), device)
        sizes = data.bytes_per_token, data.part_bytes_per_token()
        split = SplitMetrics(*sizes, device, metrics, objective.loss_unit)
        for (part, _), batch in batches:
            split.evaluate(objective, model, map_tensors(batch, lambda x: x.to(device)), part)
    unit = objective.loss_unit.split()[-1]  # nats per token
    return of_split(split.compute()) | {f"{unit}s": int(split.total.tokens)}


def text_likelihood(run: Any, path: str, field: str, batch_size: int | None = None) -> State:
    """Returns loss, perplexity and, if every token is predicted, bits_per_byte of a text; the
    numbers of its predicted `tokens` and of their `bytes`; and, if there are any, those of its
    `unknown` tokens and of the `characters_dropped`, for which there is no token.

    path, field: see `given_windows`, which raises ConfigError.
    """
    data, objective, device = run.config["data"], run.objective, device_of(run)
    seed = run.config["seed"] if data.get("seed") is None else data["seed"]
    with given_windows(path, field, run.config, objective.tokenizer) as (text, dropped):
        examples = Examples(text, objective.example, seed)
        rows = batch_size or micro_batch(run.config)[0] * data["seq_len"] // text.seq_len or 1
        every_token = objective.predicts_every_token
        likelihood = Likelihood(text.bytes_per_token if every_token else None)
        with in_precision(run) as model:
            for start in range(0, len(text), rows):
                keys = range(start, min(start + rows, len(text)))
                batch = batch_to_device(device, [examples[key] for key in keys])
                loss, count, _ = summed_loss(objective, model, batch)
                likelihood.update(loss.cpu(), count.cpu())
        unknown = objective.tokenizer.count_unknown(text.ids)
    counts = {"tokens": int(likelihood.tokens)}
    counts |= {"bytes": text.bytes} if every_token else {}
    lost = {"unknown": unknown, "characters_dropped": dropped}
    return likelihood.compute() | counts | {name: count for name, count in lost.items() if count}
