"""The default config of each class, which is that of a published model: names, shapes and number of
parameters, on the meta device.
"""

import json
import math

import pytest
import torch

from xformer_kit.export import meta_model
from xformer_kit.hub.transfer import expected_shapes, table_of
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.float64 import has_waves
from xformer_kit.plan import model_plan
from xformer_kit.pretrained import composition_of

ARCHITECTURES = sorted({case.architecture for case in CASES.values()})
# What the default of a class lacks, or has otherwise than the published files.
ARGUMENTS = {
    "HunYuanDenseV1ForCausalLM": {"head_dim": 128},
    "MinistralForCausalLM": {"head_dim": 128},
    "Glm4MoeForCausalLM": {"head_dim": 128},
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 6},
    "Dots1ForCausalLM": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2},
    "DebertaV2ForMaskedLM": {
        "relative_attention": True,
        "position_biased_input": False,
        "share_att_key": True,
        "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"],
        "type_vocab_size": 0,
    },
    "NemotronForCausalLM": {"num_key_value_heads": 48},
}
# Names of modules -> of files.
IN_FILES = {"GPTNeoXForCausalLM": {"lm_head.weight": "embed_out.weight"}}

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.extended


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_parameters_of_a_published_size(architecture):
    cls = getattr(transformers, architecture)
    config = cls.config_class(**ARGUMENTS.get(architecture, {}))
    with torch.device("meta"):
        theirs = cls(config)
    found = composition_of(json.loads(config.to_json_string(use_diff=False)))
    ours = meta_model(*found[2:])
    table = table_of(found.family, ours, model_plan(found.config))
    expected = expected_shapes(table)
    tied = getattr(theirs, "all_tied_weights_keys", {})
    copies = {*tied, *tied.values()} - expected.keys()
    tensors = {n: p for n, p in theirs.named_parameters() if p.requires_grad and n not in copies}
    waves = {f"{n}.weight" for n, module in theirs.named_modules() if has_waves(module)}
    names = IN_FILES.get(architecture, {})
    shapes = {names.get(n, n): tuple(t.shape) for n, t in tensors.items() if n not in waves}
    buffers = {name for name, _ in theirs.named_buffers()}
    own = {name: shape for name, shape in expected.items() if name not in buffers}
    # A tied tensor is one parameter, under either of its names.
    lost = [name for name in own if name not in shapes and name in {*tied, *tied.values()}]
    shapes |= {name: own[name] for name in lost}
    assert sum(map(math.prod, own.values())) == sum(map(math.prod, shapes.values()))
    if not any(".experts" in name for name in shapes):  # of which files have other names
        assert own == shapes
