import pytest
import torch

from tasks.modules.auto_accumulate import fewest_parts
from xformer_kit import ConfigError


@pytest.mark.parametrize(("fits", "components"), [(12, 1), (11, 2), (5, 3), (1, 12)])
def test_the_fewest_micro_batches_that_fit(fits, components):
    attempted, cleaned = [], []

    def attempt(rows):
        attempted.append(rows)
        if rows > fits:
            raise torch.OutOfMemoryError

    assert fewest_parts(24, 2, attempt, lambda: cleaned.append(1)) == components
    assert attempted[-1] == 12 // components
    assert len(cleaned) == len(attempted)


def test_the_message_names_a_fix_if_not_one_sequence_fits():
    def attempt(rows):
        raise torch.OutOfMemoryError

    with pytest.raises(ConfigError, match=r"^trainer.accumulate: not even one sequence"):
        fewest_parts(4, 1, attempt, lambda: None)
