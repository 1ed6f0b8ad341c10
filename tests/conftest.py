import gc
import multiprocessing
import os
import sys
import zlib
from collections import defaultdict
from pathlib import Path

# Two threads are slower than one while other processes run.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)
# For the modules that several tests share: train_processes.py, refusals.py, x_attention.py.
TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(Path(__file__).parents[1]))

# Modules that return tests or have assertions for them.
pytest.register_assert_rewrite(
    "refusals", "tests.config.effects", "tests.masks", "tests.tasks.command_lines"
)

from tests.forked_train import PRELOADED  # noqa: E402

# The server starts when a test first needs it.
multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)


# Cases of one test that are in `make test`, unless the mark `cases` gives their number; the others
# are marked as extended.
CASES = 4
# Folders whose cases take so little time that all of them are in `make test`.
QUICK = {"data", "ffn", "mask", "model", "norm", "objective", "optim", "placement", "position"}
QUICK |= {"metrics", "study", "tensors"}


@pytest.hookimpl(tryfirst=True)  # before `-m` is applied
def pytest_collection_modifyitems(items):
    """Marks all but some cases of each test as extended: those with the lowest hashes, since cases
    at equal distances would often have the same value of a second parameter.

    Sorts slow tests first, because all other workers wait for the last test.
    """
    cases = defaultdict(list)
    for item in items:
        kept = any(map(item.get_closest_marker, ("extended", "every_case")))
        if not kept and item.path.relative_to(TESTS).parts[0] not in QUICK:
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_test in cases.values():
        of_test.sort(key=lambda item: zlib.crc32(item.name.encode()))
        fewer = of_test[0].get_closest_marker("cases")
        for item in of_test[fewer.args[0] if fewer else CASES :]:
            item.add_marker(pytest.mark.extended)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """Excludes imported objects from garbage collection, which takes half a second with them, and
    makes collections rarer: by default they take 5 % of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
