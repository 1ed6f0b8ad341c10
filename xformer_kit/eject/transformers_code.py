"""An ejected file as the modelling code of a directory of transformers."""

from typing import Any

from xformer_kit.eject.writer import render
from xformer_kit.model.model import Model

MODEL_TYPE, FILE = "xformer_kit", "modeling_xformer"
# The classes of transformers by the stacks of a model: the auto class, ours, and its output.
CLASSES = {
    ("decoder",): ("AutoModelForCausalLM", "XformerForCausalLM", "CausalLMOutput"),
    ("encoder",): ("AutoModelForMaskedLM", "XformerForMaskedLM", "MaskedLMOutput"),
    ("encoder", "decoder"): ("AutoModelForSeq2SeqLM", "XformerForSeq2SeqLM", "Seq2SeqLMOutput"),
}


def modelling_code(source: str, model: Model) -> str:
    """Returns the code of a class of transformers with the model of an ejected file."""
    _, name, output = CLASSES[model.names]
    return render(
        "transformers",
        source=source,
        name=name,
        output=output,
        model_type=MODEL_TYPE,
        causal=model.names == ("decoder",),
        two=model.two_stacks,
    )


def config_keys(model: Model) -> dict[str, Any]:
    """Returns the config.json of a directory with modelling code."""
    auto, name, _ = CLASSES[model.names]
    keys: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": [name],
        "auto_map": {"AutoConfig": f"{FILE}.XformerConfig", auto: f"{FILE}.{name}"},
        "vocab_size": model.vocab_size,
        "hidden_size": model.dim,
        "num_hidden_layers": len(model.stack),
        "is_encoder_decoder": model.two_stacks,
        "use_cache": False,
    }
    if model.stack.max_seq_len is not None:
        keys["max_position_embeddings"] = model.stack.max_seq_len
    return keys
