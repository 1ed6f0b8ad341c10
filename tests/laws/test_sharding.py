"""Two processes that hold half of every parameter have the gradients of one that holds all: for
compositions that contain every component.
"""

import json
import os
from pathlib import Path

import pytest

from tests.forked_train import ForkedTrain
from tests.laws.rows import each_choice

WORLD = 2


@pytest.mark.slow
@pytest.mark.extended
def test_every_gradient_of_a_sharded_model_is_that_of_one_process(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    script = Path(__file__).with_name("sharding_worker.py")
    ranks = [
        ForkedTrain([str(rank), str(tmp_path)], tmp_path, environment, script)
        for rank in range(WORLD)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err[-3000:]
    for rank in range(WORLD):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(found) == len(each_choice())
        assert {row: names for row, names in found.items() if names} == {}
