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
# For the modules that several tests share: driving.py, refusing.py, x_attention.py.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

# Modules that make tests or assert for them.
pytest.register_assert_rewrite(
    "refusing", "tests.config.effects", "tests.masks", "tests.tasks.command_lines"
)

from tests.warm import IMPORTED  # noqa: E402

# The server starts when a test first needs it.
multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)


def pytest_collection_modifyitems(items):
    """Slow tests come first: all other workers wait for the last test."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """Leaves what is imported out of garbage collection, which takes half a second with it."""
    gc.collect()
    gc.freeze()
