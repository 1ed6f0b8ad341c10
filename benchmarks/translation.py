"""Quality of transformers' Marian after the same training as a run of xformer_kit.

    python train.py experiment=tatoeba data.path=deu-eng.tsv logger=none
    hydra.run.dir=outputs/tatoeba/ours python -m benchmarks.translation outputs/tatoeba/ours
    [--weights marian.pt] [--rounds 10] [--save]

MarianMTModel of the same sizes starts from its own initial weights and is trained on the batches of
the run, in their order, with the run's tokenizer, optimizer, schedule, clipping, dropout and label
smoothing, for as many steps. Both translate the test split with the same number of beams, each
with its own search, and are evaluated by sacrebleu. Then training steps of both are timed
interleaved on the same batches: medians over rounds of CPU time on one thread.

--weights is the file of Marian's weights; if it holds those of all steps, Marian is not trained
again.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import CLOCKS, machine, ratio, rounds, save
from tasks.generation.decoding import BATCH_SIZE, first_answers
from tasks.logging import summary
from tasks.modules.text_metrics import translation_metrics
from xformer_kit import ConfigError, build, load
from xformer_kit.config import read_config
from xformer_kit.data import collate, prepare
from xformer_kit.data.preparation.training_data import TrainingData, set_tokenizers
from xformer_kit.objective import objective_of
from xformer_kit.optim import create_optimizer
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.tensors.tokens import Tokens

OURS, MARIAN = "ours", "transformers Marian"
SAID = 50  # steps between two lines on the screen
Config = dict[str, Any]
Figures = dict[str, Any]


def opened(run: Path) -> tuple[Config, TrainingData]:
    """Returns a run's config and its data."""
    config = read_config(run)
    prepared = prepare(config)
    return config, TrainingData(config, prepared, set_tokenizers(objective_of(config), prepared))


def special(data: TrainingData) -> tuple[int, int]:
    """Returns the ids that start and end a target."""
    start, end = (data.objective.tokenizer.special(name) for name in data.objective.specials[:2])
    return start, end


def marian(config: Config, data: TrainingData) -> nn.Module:
    """MarianMTModel with the sizes of a run, started by transformers. As is usual there, a target
    starts with the padding, whose embedding is zero where it is read.
    """
    from transformers import MarianConfig, MarianMTModel

    model, attn, ffn = config["model"], config["attn"], config["ffn"]
    start, end = special(data)
    sizes = {"layers": model["layers"], "attention_heads": attn["heads"], "ffn_dim": ffn["width"]}
    both = {
        f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()
    }
    torch.manual_seed(config["seed"])
    return MarianMTModel(
        MarianConfig(
            vocab_size=data.objective.tokenizer.size,
            d_model=model["dim"],
            max_position_embeddings=config["data"]["seq_len"],
            activation_function=ffn["activation"],
            dropout=model["dropout"],
            attention_dropout=attn["dropout"],
            activation_dropout=ffn["dropout"],
            scale_embedding=model["embed_scale"] == "sqrt_dim",
            init_std=config["init"]["std"],
            pad_token_id=start,
            decoder_start_token_id=start,
            eos_token_id=end,
            forced_eos_token_id=None,
            **both,
        )
    )


def mask(tokens: Tokens) -> Tensor:
    return torch.ones_like(tokens.ids) if tokens.real is None else tokens.real.long()


def marian_loss(
    model: nn.Module, batch: dict[str, Tokens], label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns the sum of cross-entropies in nats and the number of target tokens."""
    source, (seen, goal) = batch["source"], batch["target"].shifted()
    logits = model(
        input_ids=source.ids,
        attention_mask=mask(source),
        decoder_input_ids=seen.ids,
        use_cache=False,
    ).logits
    nats = F.cross_entropy(
        logits.flatten(0, 1),
        goal.flatten(),
        ignore_index=-1,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return nats, (goal >= 0).sum()


class Training:
    """A bare training loop with a run's settings. loss: (model, batch) -> (nats, tokens, ...)."""

    def __init__(self, config: Config, model: nn.Module, loss: Callable[..., Any], total: int):
        self.model = model.train()
        self.loss = loss
        self.clip = config["trainer"]["gradient_clip_val"]
        self.optimizer = create_optimizer(config["optim"], model)
        self.schedule = SCHEDULES.create(config["schedule"], max_steps=total)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.done = 0  # steps

    def step(self, batch: dict[str, Tokens]) -> tuple[float, int]:
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * self.schedule(self.done)
        nats, count = self.loss(self.model, batch)[:2]
        (nats / count).backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        return nats.item(), int(count)


def of_marian(config: Config, data: TrainingData) -> Training:
    loss = partial(marian_loss, label_smoothing=config["task"]["label_smoothing"])
    return Training(config, marian(config, data), loss, data.total_steps)


def of_ours(config: Config, data: TrainingData) -> Training:
    model = build(config, data.objective.tokenizer.size)
    return Training(config, model, data.objective.loss, data.total_steps)


def batches(data: TrainingData) -> Iterator[dict[str, Any]]:
    """Yields the batches of a run's steps, on one device without accumulation."""
    yield from data.loader("train", data.step_sampler(1, 0, 1), torch.device("cpu"))


def train(config: Config, data: TrainingData, weights: Path) -> None:
    """Trains Marian; its weights are saved as often as those of the run, with the step and the
    time.
    """
    training, total = of_marian(config, data), data.total_steps
    often = config["trainer"]["checkpoint_every"] or total
    wall, cpu, read, nats, count = CLOCKS["wall"](), CLOCKS["cpu"](), 0, 0.0, 0
    for done, batch in enumerate(batches(data), 1):
        more, tokens = training.step(batch)
        nats, count, read = nats + more, count + tokens, read + int(data.objective.size(batch))
        if done % SAID == 0 or done == total:
            print(f"step {done:,}/{total:,}  loss {nats / count:.3f}", flush=True)
            nats, count = 0.0, 0
        if done % often == 0 or done == total:
            spent = {
                "seconds": CLOCKS["wall"]() - wall,
                "cpu_seconds": CLOCKS["cpu"]() - cpu,
                "tokens": read,
            }
            torch.save(
                {"step": done, "state": training.model.state_dict(), "spent": spent}, weights
            )


def trained(config: Config, data: TrainingData, weights: Path) -> tuple[nn.Module, Figures]:
    """Returns Marian after the training of a run, and the training time."""
    there = torch.load(weights, weights_only=True) if weights.exists() else {"step": 0}
    if there["step"] != data.total_steps:
        train(config, data, weights)
        there = torch.load(weights, weights_only=True)
    model = marian(config, data)
    model.load_state_dict(there["state"])
    return model.eval(), there["spent"]


@torch.inference_mode()
def marian_answers(
    model: nn.Module, data: TrainingData, examples: Sequence[Any], most: int, beam: int
) -> list[np.ndarray]:
    """The answers of Marian's search, in the batches and with the token limit of
    `tasks.generation.decoding.generate_answers`.
    """
    order = sorted(range(len(examples)), key=lambda i: len(examples[i]["source"]))
    found: list[np.ndarray] = [np.empty(0, np.int64)] * len(examples)
    end = special(data)[1]
    for some in (order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)):
        prompts = [
            data.objective.pair(examples[i]["source"], examples[i]["target"][:0]) for i in some
        ]
        source = collate([{"source": prompt["source"]} for prompt in prompts])["source"]
        ids = model.generate(
            source.ids,
            attention_mask=mask(source),
            num_beams=beam,
            max_new_tokens=most,
            do_sample=False,
            length_penalty=1.0,
            early_stopping=False,
        )
        for i, row in zip(some, ids[:, 1:].tolist(), strict=True):
            found[i] = np.array(row[: row.index(end)] if end in row else row, dtype=np.int64)
    return found


def translated(config: Config, data: TrainingData, ours: nn.Module, theirs: nn.Module) -> Figures:
    """Returns both models' metrics on the test split, and their first translations."""
    split, most, beam = data.prepared.test, config["data"]["seq_len"], config["task"]["beam"]
    examples, decode = [split[i] for i in range(len(split))], data.prepared.tokenizer.decode
    run = SimpleNamespace(model=ours, objective=data.objective)
    ways: dict[str, Callable[[], list[np.ndarray]]] = {
        OURS: lambda: first_answers(run, examples, max_new_tokens=most, beam=beam),
        MARIAN: lambda: marian_answers(theirs, data, examples, most, beam),
    }
    found: Figures = {"pairs": len(examples), "beam": beam}
    right, every = [decode(example["target"]) for example in examples], {}
    for name, way in ways.items():
        start = CLOCKS["cpu"]()
        said = [decode(ids) for ids in way()]
        spent = CLOCKS["cpu"]() - start
        found[name] = {**translation_metrics(said, right), "cpu_seconds": spent, "first": said[:5]}
        every[name] = said
        print(
            "{}: BLEU {bleu:.2f} {signature}, chrF {chrf:.2f}".format(name, **found[name]),
            flush=True,
        )
    return found | {"bootstrap": bootstrapped(every, right)}


def bootstrapped(answers: dict[str, list[str]], right: list[str]) -> Figures:
    """BLEU over 1,000 draws of the pairs, and half the width that 95 % of them span; p: how likely
    so large a difference is where there is none (Koehn, 2004, "Statistical Significance Tests for
    Machine Translation Evaluation", section 4).
    """
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    test = PairedTest(
        list(answers.items()), {"BLEU": BLEU()}, [right], test_type="bs", n_samples=1000
    )
    rows = zip(answers, test()[1]["BLEU"], strict=True)
    return {
        name: {"mean": float(row.mean), "half": float(row.ci), "p": row.p_value}
        for name, row in rows
    }


def timed(config: Config, data: TrainingData, count: int) -> Figures:
    """Times interleaved training steps of both models on the first batches of the run."""
    some = list(islice(batches(data), count + 1))
    tokens = statistics.mean(int(data.objective.size(batch)) for batch in some[1:])

    def stepper(training: Training) -> Callable[[], Any]:
        left = iter(some)
        return lambda: training.step(next(left))

    both = {OURS: stepper(of_ours(config, data)), MARIAN: stepper(of_marian(config, data))}
    taken = rounds(both, count, clock="cpu")
    rows = {
        name: {"ms": 1e3 * statistics.median(t), "tokens_per_second": tokens * count / sum(t)}
        for name, t in taken.items()
    }
    return {
        "clock": "cpu",
        "rounds": count,
        "rows": rows,
        "ratio": ratio(taken[MARIAN], taken[OURS]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="directory of a finished run of experiment=tatoeba")
    parser.add_argument("--weights", type=Path, default=Path("marian.pt"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/translation.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    config, data = opened(options.run)
    models = build(config, data.objective.tokenizer.size), marian(config, data)
    counts = [sum(p.numel() for p in model.parameters() if p.requires_grad) for model in models]
    if len(set(counts)) > 1:
        raise SystemExit(
            f"Marian has {counts[1]:,} parameters, the run {counts[0]:,}: no run of"
            " experiment=tatoeba."
        )
    theirs, spent = trained(config, data, options.weights)
    ran = summary.read(options.run) or {}
    if ran.get("steps") != data.total_steps:
        raise SystemExit(
            f"{options.run}: is not finished; got {ran.get('steps', 0)} of {data.total_steps}"
            " steps."
        )
    kept = ("seconds", "tokens_per_second", "val/loss", "test/bleu")
    found: Figures = {
        "parameters": counts[0],
        "steps": ran["steps"],
        "run": {key: ran.get(key) for key in kept},
    }
    found |= {
        "training of Marian": spent,
        "test": translated(config, data, load(str(options.run)), theirs),
    }
    found["step"] = timed(config, data, options.rounds)
    for name, row in found["step"]["rows"].items():
        print(
            f"{name}: {row['ms']:.0f} ms a step, {row['tokens_per_second']:.0f} tokens/s of the"
            " processor's time"
        )
    if options.save:
        print(f"written to {save('translation', machine(1), found)}")


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        raise SystemExit(str(error)) from None
