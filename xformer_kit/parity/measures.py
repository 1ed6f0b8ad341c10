"""What is compared between a published model and ours, one function for each column of the table.

A distance is the largest difference, as a share of the largest value. All are in float64 unless
the name has another precision. None: does not apply to the model.
"""

import copy
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.eject import eject
from xformer_kit.eject.check import as_module, with_kernel
from xformer_kit.hub.architecture import architecture
from xformer_kit.model.build import build_model
from xformer_kit.parity.float64 import double
from xformer_kit.parity.pairs import (
    IDS,
    LEFT,
    RIGHT,
    SOURCE_REAL,
    SOURCES,
    Pair,
    distance,
    files_of,
    load,
    loss_of,
    our_gradients,
    our_logits,
    randomise,
    their_gradients,
    their_logits,
    their_model,
)
from xformer_kit.pretrained import composition_of


@torch.no_grad()
def logits(pair: Pair) -> float:
    """Distance of the logits from those of transformers' attention `eager`."""
    return distance(our_logits(pair.ours), their_logits(pair.theirs))


@torch.no_grad()
def logits_with_sdpa(pair: Pair) -> float | None:
    """Distance of the logits from those of transformers' attention `sdpa`."""
    if not pair.case.sdpa:
        return None
    theirs = double(their_model(pair.case, "sdpa"))
    return distance(our_logits(pair.ours), their_logits(theirs))


def gradient_distances(got: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference of each gradient of ours by its name in the files, as a share of the
    largest gradient of all; infinite for a name that transformers does not have.
    """
    scale = max(gradient.abs().max() for gradient in expected.values())
    return {
        name: float((gradient - expected[name]).abs().max() / scale)
        if name in expected
        else math.inf
        for name, gradient in got.items()
    }


def gradients_by_name(pair: Pair) -> dict[str, float]:
    """The distances of the gradients in float64."""
    theirs = their_gradients(pair.theirs, pair.folder / "gradients")
    return gradient_distances(our_gradients(pair.ours, pair.table), theirs)


def gradients(pair: Pair) -> float:
    """The largest of them."""
    return max(gradients_by_name(pair).values())


@torch.no_grad()
def logits_in_fp32(pair: Pair) -> float:
    """Distance of the logits, both models in fp32."""
    theirs, ours = pair.in_fp32
    return distance(our_logits(ours), their_logits(theirs))


def gradients_in_fp32(pair: Pair) -> float:
    """The largest distance of the gradients, both models in fp32."""
    theirs, ours = pair.in_fp32
    expected = their_gradients(theirs, pair.folder / "gradients_in_fp32")
    return max(gradient_distances(our_gradients(ours, pair.table), expected).values())


@torch.no_grad()
def divergence_in_bf16(pair: Pair) -> float:
    """The KL divergence of our distribution of the next token from theirs, both models in bf16:
    mean over all tokens.
    """
    theirs, ours = load(pair.folder, torch.bfloat16), copy.deepcopy(pair.in_fp32[1]).bfloat16()
    one, two = (x.double().log_softmax(-1) for x in (our_logits(ours), their_logits(theirs)))
    return float((two.exp() * (two - one)).sum(-1).mean())


@torch.no_grad()
def padded_logits(pair: Pair, real: Tensor) -> float | None:
    """Distance of the logits of a padded batch at its real tokens. Of two stacks, the source is
    padded, on the right.
    """
    shown = real
    if pair.ours.two_stacks:
        if real is LEFT:
            return None
        real, shown = SOURCE_REAL, torch.ones_like(IDS, dtype=torch.bool)
    ours, theirs = our_logits(pair.ours, real), their_logits(pair.theirs, real)
    return distance(ours[shown], theirs[shown])


@torch.no_grad()
def cached_tokens(pair: Pair) -> float | None:
    """Share of the tokens that are not the most likely ones of transformers without a cache, when
    our model generates greedily with its cache.
    """
    if pair.ours.names == ("encoder",):
        return None
    source = SOURCES if pair.ours.two_stacks else None
    generated = pair.ours.generate(IDS[:, :5], max_new_tokens=6, temperature=0.0, source=source)
    expected = their_logits(pair.theirs, ids=generated)[:, 4:-1].argmax(-1)
    return float((expected != generated[:, 5:]).double().mean())


def differing_tensors(pair: Pair) -> list[str]:
    """Names of tensors of the exported files that differ in a byte, or that only one has."""
    theirs, ours = files_of(pair.folder), files_of(pair.exported)
    differ = [n for n in theirs.keys() & ours.keys() if not torch.equal(theirs[n], ours[n])]
    return sorted([*differ, *(theirs.keys() ^ ours.keys())])


def tensors_written_back(pair: Pair) -> float:
    """Share of the tensors that differ after import and export."""
    return len(differing_tensors(pair)) / len(files_of(pair.folder))


@torch.no_grad()
def exported_logits(pair: Pair) -> float:
    """Distance of the logits from those of transformers with the exported files."""
    theirs = double(load(pair.exported, torch.float64))
    return distance(our_logits(pair.ours), their_logits(theirs))


def ejected(pair: Pair) -> float:
    """Distance of logits and gradients of the ejected file from ours with the kernel that it names,
    the larger of both, with random weights.
    """
    config, sizes = with_even_experts(pair.composition.config), pair.composition[-2:]
    module = as_module(eject(config, *sizes))
    same = randomise(build_model(with_kernel(config), *sizes)).double().eval()
    theirs = module.Transformer(module.Config()).double().eval()
    theirs.load_state_dict(same.state_dict())
    if same.two_stacks:
        one, two = same(source=SOURCES, target=IDS), theirs(SOURCES, IDS)
    else:
        one, two = same(IDS), theirs(IDS)
    for logits in (one, two):
        loss_of(logits).backward()
    other = dict(theirs.named_parameters())
    pairs = [(one, two), *((p.grad, other[n].grad) for n, p in same.named_parameters())]
    return max(distance(ours, theirs) for ours, theirs in pairs if ours is not None)


def with_even_experts(node: Any) -> Any:
    """The config with even widths of experts. Products of rows that do not start at multiples of 16
    bytes depend on the address in memory in their last digit.
    """
    if not isinstance(node, dict):
        return node
    found = {key: with_even_experts(value) for key, value in node.items()}
    if found.get("name") == "moe" and found.get("width"):
        found["width"] += found["width"] % 2
    return found


def architectures(pair: Pair) -> tuple[dict, dict]:
    """The architecture, and that of the exported config.json."""
    again = composition_of(json.loads((pair.exported / "config.json").read_text()))
    one, two = (architecture(found.config, pair.ours) for found in (pair.composition, again))
    return one, two


class Measure(NamedTuple):
    """A column of the table. bound: largest value of a model that agrees; 0: everything is equal.
    meaning: of the value, for the page.
    """

    heading: str
    bound: float
    value: Callable[[Pair], float | None]
    meaning: str


MEASURES: tuple[Measure, ...] = (
    Measure("logits", 1e-10, logits, "logits, with transformers' attention `eager`"),
    Measure("sdpa", 1e-10, logits_with_sdpa, "logits, with its attention `sdpa`"),
    Measure("gradients", 1e-10, gradients, "gradients of all weights"),
    Measure("fp32", 1e-5, logits_in_fp32, "logits, both models in fp32"),
    Measure("fp32 gradients", 1e-4, gradients_in_fp32, "gradients, both models in fp32"),
    Measure(
        "bf16 KL",
        1e-3,
        divergence_in_bf16,
        "KL divergence of the distributions of the next token in bf16, mean over tokens",
    ),
    Measure(
        "padded left",
        1e-10,
        partial(padded_logits, real=LEFT),
        "logits of a batch that is padded on the left, at its real tokens",
    ),
    Measure(
        "padded right",
        1e-10,
        partial(padded_logits, real=RIGHT),
        "the same with padding on the right; of two stacks, of the source",
    ),
    Measure(
        "cached",
        0,
        cached_tokens,
        "tokens that ours generates greedily with its cache, and the most likely ones of"
        " transformers without a cache",
    ),
    Measure("files", 0, tensors_written_back, "bytes of the tensors after import and export"),
    Measure(
        "exported", 1e-10, exported_logits, "logits, with transformers reading the exported files"
    ),
    Measure("ejected", 0, ejected, "logits and gradients of the ejected file, and ours"),
)
