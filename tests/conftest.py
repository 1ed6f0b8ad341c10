import gc
import multiprocessing
import os
import sys
from pathlib import Path

# Two threads are slower than one while other processes run.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)
# For the modules that several tests share: train_processes.py, refusals.py, x_attention.py.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

# Modules that return tests or have assertions for them.
pytest.register_assert_rewrite(
    "refusals", "tests.config.effects", "tests.masks", "tests.tasks.command_lines"
)

from tests.forked_train import PRELOADED  # noqa: E402

# The server starts when a test first needs it.
multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)


def pytest_collection_modifyitems(items):
    """Sorts slow tests first, because all other workers wait for the last test."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """Excludes imported objects from garbage collection, which takes half a second with them, and
    makes collections rarer: by default they take 5 % of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
