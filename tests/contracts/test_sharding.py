"""Two processes that hold half of every weight each train as one process that holds all."""

import os
from pathlib import Path

import pytest
import torch
from compositions import model_of
from sharded_worker import VARIANTS, WORLD, outcome, train

from tests.forked_train import ForkedTrain

HERE = Path(__file__).parent
EXACT = [name for name in VARIANTS if "half" not in name]
pytestmark = [pytest.mark.slow, pytest.mark.extended]
SECONDS = 300  # that the processes may take together


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, list[dict]]:
    """For every composition what each rank saved."""
    directory = tmp_path_factory.mktemp("sharded")
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    words = [[str(rank), str(directory)] for rank in range(WORLD)]
    ranks = [
        ForkedTrain(each, directory, environment, HERE / "sharded_worker.py") for each in words
    ]
    errors = [process.communicate(timeout=SECONDS)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * WORLD, "\n".join(
        error[-3000:] for error in errors
    )
    files = {name: [directory / f"{name}.{rank}.pt" for rank in range(WORLD)] for name in VARIANTS}
    return {
        name: [torch.load(file, weights_only=True) for file in of_ranks]
        for name, of_ranks in files.items()
    }


def unsharded(name: str) -> tuple[dict, dict]:
    """The same training in one process: its state and what it does."""
    model = model_of(VARIANTS[name][0])
    losses = train(model, range(WORLD), lambda value: None)
    return model.state_dict(), outcome(model, losses)


@pytest.mark.parametrize("name", EXACT)
def test_same_losses_and_same_weights_as_one_process(name, saved):
    state, expected = unsharded(name)
    losses = [
        loss
        for step in zip(*(rank["losses"] for rank in saved[name]), strict=True)
        for loss in step
    ]
    torch.testing.assert_close(losses, expected["losses"], rtol=0, atol=1e-10)
    for rank in saved[name]:
        held = {
            key.replace("_checkpoint_wrapped_module.", ""): value
            for key, value in rank["state"].items()
        }
        torch.testing.assert_close(held, state, rtol=0, atol=1e-9)
        for what in ("hidden", "logits"):
            torch.testing.assert_close(rank[what], expected[what], rtol=0, atol=1e-8)
        assert rank["generated"].tolist() == expected["generated"].tolist()


@pytest.mark.parametrize("name", VARIANTS)
def test_each_process_holds_its_share(name, saved):
    full = {key: value.numel() for key, value in model_of(VARIANTS[name][0]).named_parameters()}
    for key, count in full.items():
        shares = [
            next(
                n
                for k, n in rank["local"].items()
                if k.replace("_checkpoint_wrapped_module.", "") == key
            )
            for rank in saved[name]
        ]
        assert sum(shares) == count
        assert max(shares) <= 0.75 * count
    assert all(
        rank["block by block"] for rank in saved[name]
    )  # so only one block is gathered at a time


@pytest.mark.parametrize("name", VARIANTS)
def test_a_tied_head_is_the_embedding_and_an_untied_is_not(name, saved):
    tied = VARIANTS[name][0] not in ("untied", "two_apart", "ngpt")
    for rank in saved[name]:
        assert rank["tied"] == tied
        assert ("head.weight" in rank["state"]) == (not tied)


@pytest.mark.parametrize("name", EXACT)
def test_the_head_may_be_called_alone(name, saved):
    for rank in saved[name]:
        weight = rank["state"].get("head.weight", rank["state"]["embed.weight"])[:29]
        if "head.scales" in rank["state"]:
            weight = weight * rank["state"]["head.scales"][:29, None] * 24**0.5
        torch.testing.assert_close(
            rank["early"], torch.ones(1, 2, 24, dtype=torch.float64) @ weight.T
        )


@pytest.mark.parametrize("name", [name for name in VARIANTS if "half" in name])
def test_half_precision_keeps_whole_weights_and_stays_near(name, saved):
    _, expected = unsharded(name)
    losses = [
        loss
        for step in zip(*(rank["losses"] for rank in saved[name]), strict=True)
        for loss in step
    ]
    torch.testing.assert_close(losses, expected["losses"], rtol=0, atol=0.1)
    assert all(value.dtype == torch.float64 for value in saved[name][0]["state"].values())
