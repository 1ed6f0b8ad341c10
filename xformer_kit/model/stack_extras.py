"""Runs the hooks of a stack's extras in one forward pass."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from xformer_kit.extra import Chosen, Extra, ExtraInput
from xformer_kit.model.block import BlockInput
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.returned import same_shape
from xformer_kit.placement import Placement, State
from xformer_kit.tensors.report import Report, add
from xformer_kit.tensors.tokens import Tokens


class StackExtras:
    """The extras of a stack in one forward pass, with their memory: the tensors that the hooks of
    an extra return for its later hooks.

    inputs: of the hooks in the stack, by extra. Their memory grows from layer to layer.
    initial_memory: what `prepare` returned, by extra. In a block the memory holds only this and
        what `before_layer` returned for this layer, so that layers share one compiled graph.
    """

    def __init__(
        self,
        extras: nn.ModuleDict,
        tokens: Tokens,
        key: Tokens,
        cache: GenerationCache | None,
        placement: type[Placement],
    ):
        self.extras: dict[str, Extra] = dict(extras.items())  # type: ignore[arg-type]
        self.any = bool(self.extras)  # whether there are any, so that no hook is called for none
        self.inputs: dict[str, ExtraInput] = {}
        self.initial_memory: dict[str, Mapping[str, Tensor]] = {}
        for name, extra in self.extras.items():
            extra_cache = None if cache is None else cache.extra.get(name, {})
            extra_input = ExtraInput(tokens, key, placement=placement, cache=extra_cache)
            self.initial_memory[name] = memory = extra.prepare(extra_input)
            self.inputs[name] = extra_input._replace(memory=memory)

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings (b, t, dim) after the hooks `embed`."""
        for name, extra in self.extras.items():
            x = same_shape(extra.embed(x, self.inputs[name]), x, f"extra.{name}", "embed")
        return x

    def before_layer(self, state: State, depth: int) -> tuple[State, dict[str, ExtraInput]]:
        """The state that enters layer `depth`, and the inputs of the hooks in its block."""
        block_inputs = {}
        for name, extra in self.extras.items():
            extra_input = self.inputs[name]._replace(depth=depth)
            changed, added = extra.before_layer(state, extra_input)
            state = same_shape(changed, state, f"extra.{name}", "before_layer")
            block_inputs[name] = extra_input._replace(memory={**self.initial_memory[name], **added})
            self._remember(name, extra_input, added)
        return state, block_inputs

    def chosen(self, state: State, depth: int) -> Chosen | None:
        """The tokens that enter layer `depth`; None: all of them."""
        for name, extra in self.extras.items():
            if extra.chooses(depth):
                chosen, added = extra.choose(state, self.inputs[name])
                self._remember(name, self.inputs[name], added)
                return chosen
        return None

    def after_layer(self, state: State) -> State:
        """The state that leaves a layer."""
        for name, extra in self.extras.items():
            changed, added = extra.after_layer(state, self.inputs[name])
            state = same_shape(changed, state, f"extra.{name}", "after_layer")
            self._remember(name, self.inputs[name], added)
        return state

    def _remember(self, name: str, extra_input: ExtraInput, added: Mapping[str, Tensor]) -> None:
        self.inputs[name] = extra_input._replace(memory={**extra_input.memory, **added})

    def add_reports(self, report: Report) -> None:
        """Adds the reports of the extras."""
        for name, extra in self.extras.items():
            add(report, extra.report(self.inputs[name]), f"extra.{name}")

    def final(self, state: State) -> State:
        """The state before the final norm."""
        for name, extra in self.extras.items():
            changed = extra.final(state, self.inputs[name])
            state = same_shape(changed, state, f"extra.{name}", "final")
        return state

    def multi_token_states(self, state: State, last: BlockInput, report: Report) -> Iterator[State]:
        """The states from which extras predict further tokens; adds to the report. `state` and
        `last` are what the block of the last layer received.
        """
        last = last._replace(caches={})
        for name, extra in self.extras.items():
            found = extra.multi_token_states(state, last, self.inputs[name])
            for module_name, (module_state, module_report) in found.items():
                add(report, module_report, f"extra.{name}.{module_name}")
                yield module_state
