import gc
import multiprocessing
import os
import sys
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # two threads beside a busy neighbour are slower than one

import torch

torch.set_num_threads(1)
sys.path.insert(
    0, str(Path(__file__).parent)
)  # for what several tests share: driving.py, refusing.py, x_attention.py
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.warm import IMPORTED  # noqa: E402

multiprocessing.get_context("forkserver").set_forkserver_preload(
    IMPORTED
)  # it starts where a test first needs it


def pytest_collection_modifyitems(items):
    """Those that take long come first: where one comes last, all other workers wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """What is imported by then stays, and need not be looked through again: a collection of garbage
    takes half a second of it.
    """
    gc.collect()
    gc.freeze()
