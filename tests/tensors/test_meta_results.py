"""Operations on the meta device that are computed once for each size."""

import pytest
import torch

from xformer_kit.tensors.meta_results import MetaResults, _has_effects

META = torch.device("meta")
CASES = {
    "types": lambda x: (x * 2, x.int() * 2.0, x.int() * 2),
    "strides": lambda x: (x.T + 1, x + 1),
    "several results": lambda x: torch.native_layer_norm(x, (3,), None, None, 1e-6),
    "a list of one": lambda x: torch.ops.aten.split_copy.Tensor(x, 3, 1),
    "dtypes": lambda x: (
        torch.zeros(2, dtype=torch.int8, device=META),
        torch.zeros(2, device=META),
    ),
}


def facts(out):
    return [(x.shape, x.stride(), x.dtype, x.device.type) for x in out], type(out)


@pytest.mark.parametrize("case", CASES)
def test_the_second_result_has_the_sizes_of_the_first(case):
    def computed():
        return CASES[case](torch.empty(2, 3, device=META))

    expected = facts(computed())
    for _ in range(2):
        with MetaResults():
            assert facts(computed()) == expected


def test_views_and_changed_arguments_are_those_of_the_arguments():
    x = torch.empty(2, 3, device=META)
    for _ in range(2):
        with MetaResults():
            assert x.add_(1) is x
            assert x.view(6)._base is x
    assert _has_effects(torch.ops.aten.view.default) and _has_effects(torch.ops.aten.add_.Tensor)
    assert not _has_effects(torch.ops.aten.add.Tensor)


def test_values_of_other_devices_are_computed_each_time():
    for n in (3, 3, 4):
        with MetaResults():
            assert (torch.arange(n) + 1).tolist() == list(range(1, n + 1))


def test_gradients_have_the_sizes_of_their_parameters():
    weight = torch.empty(3, 4, device=META, requires_grad=True)
    for _ in range(2):
        weight.grad = None
        with MetaResults():
            (torch.empty(2, 3, device=META) @ weight).square().sum().backward()
        assert weight.grad.shape == weight.shape
