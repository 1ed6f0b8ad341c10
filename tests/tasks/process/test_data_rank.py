"""The rank of a process among those that read different examples."""

import re
from pathlib import Path
from types import SimpleNamespace

from tasks.process.ranks import DataRank

TASKS = Path(__file__).resolve().parents[3] / "tasks"
# Files that mean all processes: they exchange values, end together, or count devices.
OF_ALL_PROCESSES = {
    *("modules/evaluation.py", "modules/module.py"),
    *("callbacks/checkpoint_saver.py", "callbacks/pruning.py", "callbacks/stopping.py"),
    *("run/checks.py", "run/nonfinite.py", "run/training_process.py"),
}


def test_the_place_of_a_rank_is_that_of_its_strategy():
    """A trainer of one device has none; that of a mesh leaves out ranks with the same data."""
    assert DataRank.of(SimpleNamespace(distributed_sampler_kwargs=None)) == (0, 1)
    places = {"num_replicas": 2, "rank": 1}  # of ranks 2 and 3 on a mesh of 2 x 2
    assert DataRank.of(SimpleNamespace(distributed_sampler_kwargs=places)) == (1, 2)


def test_data_seeds_and_sums_read_no_rank_or_number_of_all_processes():
    found = {
        str(path.relative_to(TASKS)): re.findall(r"\.(world_size|global_rank)\b", path.read_text())
        for path in TASKS.rglob("*.py")
    }
    assert {name for name, uses in found.items() if uses} == OF_ALL_PROCESSES
    assert not any("global_rank" in uses for uses in found.values())
    assert found["modules/module.py"] == ["world_size"]  # whether gradients are in DDP's graph
