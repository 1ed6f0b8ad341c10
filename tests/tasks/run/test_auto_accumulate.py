import pytest
import torch

from tasks.run.auto_accumulate import search
from xformer_kit import ConfigError


@pytest.mark.parametrize(("fits", "components"), [(12, 1), (11, 2), (5, 3), (1, 12)])
def test_the_fewest_micro_batches_that_fit(fits, components):
    tried, cleaned = [], []

    def attempt(rows):
        tried.append(rows)
        if rows > fits:
            raise torch.OutOfMemoryError

    assert search(24, 2, attempt, lambda: cleaned.append(1)) == components
    assert tried[-1] == 12 // components
    assert len(cleaned) == len(tried)


def test_where_nothing_fits_the_message_names_the_way_out():
    def attempt(rows):
        raise torch.OutOfMemoryError

    with pytest.raises(ConfigError, match=r"^trainer.accumulate: not even one sequence"):
        search(4, 1, attempt, lambda: None)
