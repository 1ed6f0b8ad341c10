"""The plan of a model: the components of every block, as plain data. No module is built."""

from xformer_kit.plan.attention_groups import AttentionGroup
from xformer_kit.plan.block_plan import BlockPlan, SublayerPlan, layout_path, provenance_of
from xformer_kit.plan.differences import (
    CARRIED,
    CROSS_DEFAULTS,
    KINDS,
    MULTIPLIER,
    OUTPUT_LAWS,
    STACKS,
    SUBLAYERS,
    WITH_SUBLAYER,
    Node,
    as_node,
    base_nodes,
    has_norms,
    merge,
    merge_sublayer,
)
from xformer_kit.plan.earlier_keys import AttentionCall, earlier_keys, key_exchanges
from xformer_kit.plan.from_config import depths, max_len, model_plan, stack_plan, stacks
from xformer_kit.plan.layers import layer_order, loop_range, shared_by
from xformer_kit.plan.model_plan import ModelPlan, StackPlan
