"""preset=whisper: its decoder computes the same as that of transformers."""

import pytest
import torch

from xformer_kit import compose
from xformer_kit.hub.stacks import bart_blocks
from xformer_kit.hub.weights import Weight, linear, matches
from xformer_kit.model.build import build_model
from xformer_kit.parity.case import DIM, HEADS, LAYERS, POSITIONS, VOCAB, WIDTH
from xformer_kit.parity.pairs import IDS, SOURCES, randomise
from xformer_kit.plan import model_plan

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.extended
WORDS = [
    "preset=whisper",
    f"model.dim={DIM}",
    f"model.layers={LAYERS}",
    f"attn.heads={HEADS}",
    f"ffn.width={WIDTH}",
    f"model.max_len={POSITIONS}",
    f"data.seq_len={POSITIONS}",
]
WEIGHTS = (
    Weight("model.decoder.embed_tokens.weight", "embed.weight"),
    Weight("model.decoder.embed_positions.weight", "decoder.position.base.weight"),
    *linear("model.decoder.layer_norm", "decoder.norm"),
    *(w for w in bart_blocks() if str(w.ours).startswith("decoder")),
)


@torch.no_grad()
def test_the_decoder_is_that_of_transformers():
    config = compose(WORDS, data=False)
    ours = randomise(build_model(config, VOCAB, source_vocab_size=VOCAB)).double().eval()
    sizes = {"d_model": DIM, "decoder_layers": LAYERS, "decoder_attention_heads": HEADS}
    theirs = transformers.WhisperForCausalLM(
        transformers.WhisperConfig(
            vocab_size=VOCAB,
            decoder_ffn_dim=WIDTH,
            max_target_positions=POSITIONS,
            pad_token_id=0,
            **sizes,
        )
    )
    own = ours.state_dict()
    own["embed.weight"] = own["embed.weight"][:VOCAB]
    shapes = {name: tensor.shape for name, tensor in own.items()}
    state = {
        name: own[match.ours[0]]
        for match in matches(WEIGHTS, shapes, model_plan(config))
        for name in match.theirs
    }
    state["proj_out.weight"] = own["embed.weight"]
    theirs.double().eval().load_state_dict(state)
    sources: list[torch.Tensor] = []
    ours.encoder.register_forward_hook(lambda _, args, out: sources.append(out))
    logits = ours(source=SOURCES, target=IDS)
    (source,) = sources
    expected = theirs(IDS, encoder_outputs=source if torch.is_tensor(source) else source[0]).logits
    torch.testing.assert_close(logits, expected)
