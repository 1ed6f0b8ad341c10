"""Options of other libraries, and components of other groups, are answered with ours."""

import pytest

from xformer_kit import compose
from xformer_kit.registry import ConfigError
from xformer_kit.registry.other_libraries import OTHER_CHOICES, OTHER_OPTIONS, WITHOUT_OPTION


def fault_of(word):
    with pytest.raises(ConfigError) as error:
        compose([word])
    (fault,) = error.value.faults
    return str(fault)


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("hidden_size=64", "Try model.dim=64."),
        ("n_embd=64", "Try model.dim=64."),
        ("n_layer=2", "Try model.layers=2."),
        ("n_head=4", "Try attn.heads=4."),
        ("num_attention_heads=4", "Try attn.heads=4."),
        ("intermediate_size=256", "Try ffn.width=256."),
        ("block_size=64", "Try data.seq_len=64."),
        ("learning_rate=1e-3", "Try optim.lr=0.001."),
        ("per_device_train_batch_size=8", "Try data.batch_size=8."),
        ("gradient_accumulation_steps=2", "Try trainer.accumulate=2."),
        ("max_epochs=1", "Try trainer.max_epochs=1."),
        ("early_stopping=true", "Try callbacks.early_stopping.patience=5."),
        ("ckpt_path=outputs/x", "Try resume=RUN."),
        ("weight_decay=0.1", "Try optim.weight_decay=0.1."),
        ("max_steps=50", "Try trainer.max_steps=50."),
        ("lr=1e-3", "Try optim.lr=0.001."),
        ("hidden_dropout_prob=0.1", "Try model.dropout=0.1."),
        ("attention_probs_dropout_prob=0.1", "Try attn.dropout=0.1."),
        ("fp16=false", "got false. It is off unless set: leave it out."),
        ("early_stopping=false", "got false. It is off unless set: leave it out."),
        ("attn.sliding_window=64", "Try mask=sliding_window mask.window=128."),
        ("attention_bias=true", "Try attn.bias=true."),
        ("gradient_checkpointing=true", "Try model.checkpoint_activations=block."),
        ("lr_scheduler_type=linear", "Try schedule=linear."),
        ("fp16=true", "Try trainer.precision=16-mixed."),
        ("neftune_noise_alpha=5", "Try extra.embedding_noise.alpha=5."),
        ("lora_r=8", "Try lora.rank=8."),
        ("lora.r=8", "Try lora.rank=8."),
        ("eval_strategy=epoch", "Try trainer.val_every=200."),
        ("max_tokens=10000", "Try trainer.max_tokens=10000."),
        ("train_tokens=10000", "Try trainer.max_tokens=10000."),
        ("schedule.final=0.2", "Try schedule.min=0.2."),
        ("load_best_model_at_end=true", "--checkpoint best evaluates the best one."),
        ("optim.learning_rate=1e-3", "Try optim.lr=0.001."),
        ("trainer.learning_rate=1e-3", "Try optim.lr=0.001."),
        ("model.decoder.variants.a.n_head=2", "Try model.decoder.variants.a.attn.heads=2."),
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(word, fix):
    message = fault_of(word)
    assert message.startswith(f"{word.partition('=')[0]}: ") and message.endswith(fix)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("mask=alibi", "mask: no mask is called 'alibi'. Try position=alibi."),
        ("norm=swiglu", "norm: no norm is called 'swiglu'. Try ffn=swiglu."),
        ("experiment=seq2seq", "experiment: no experiment is called 'seq2seq'. Try task=seq2seq."),
        ("model=rotary", "model: no model is called 'rotary'. Try position=rotary."),
    ],
)
def test_a_component_of_another_group_is_answered_with_that_group(word, message):
    assert fault_of(word) == message


@pytest.mark.parametrize("group", ["attn", "ffn", "mask", "position", "norm"])
def test_no_option_of_ours_is_one_of_another_library(group):
    config = compose(["mask=sliding_window", "mask.window=8"])
    assert not config[group].keys() & (OTHER_OPTIONS.keys() | WITHOUT_OPTION.keys())


@pytest.mark.parametrize("choice", OTHER_CHOICES)
def test_a_choice_of_another_library_is_answered_with_what_composes(choice):
    ours = OTHER_CHOICES[choice]
    assert fault_of(choice).endswith(f" Try {ours}.")
    compose([*ours.split(), "logger=none"])


def test_options_that_are_named_exist():
    config = compose(
        [
            "mask=sliding_window",
            "mask.window=8",
            "extra.embedding_noise={}",
            "attn.score.softcap=30",
            "trainer.deterministic=true",
            "trainer.limit_val_batches=1",
            "trainer.enable_progress_bar=true",
            "trainer.enable_model_summary=true",
        ]
    )
    # of ffn=moe, of data=text, of init=normal, of the line
    of_others = {
        "data.valid",
        "ffn.experts",
        "ffn.top_k",
        "init.std",
        "resume",
        "debug",
        "study",
        "name",
    }
    elsewhere = ("callbacks.", "hydra.", "logger", "model.encoder.", "model.decoder.")
    for other, override in OTHER_OPTIONS.items():
        path = override.partition("=")[0]
        if path in of_others or path.startswith(elsewhere):
            continue
        node = config
        for key in path.split("."):
            assert key in node, other
            node = node[key]


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("trainer.max_steps=1e3", ("trainer", "max_steps")),
        ("trainer.max_tokens=1e9", ("trainer", "max_tokens")),
        ("data.seq_len=1e3", ("data", "seq_len")),
        ("seed=1e3", ("seed",)),
        ("model.dim=1.28e2", ("model", "dim")),
        ("model.decoder.layers=1e3", ("model", "decoder", "layers")),
        ("ffn.width=1e3", ("ffn", "width")),
        ("schedule.warmup=1e2", ("schedule", "warmup")),
    ],
)
def test_a_whole_number_in_scientific_notation_is_an_integer(word, path):
    value = compose([word])
    for key in path:
        value = value[key]
    assert type(value) is int and value == float(word.partition("=")[2])


def test_a_fraction_and_a_float_option_are_not_rounded():
    assert fault_of("trainer.max_steps=1.5").startswith("trainer.max_steps: must be a whole number")
    limit = compose(["trainer.limit_val_batches=1.0"])["trainer"]["limit_val_batches"]
    assert type(limit) is float  # 1.0 is all batches, 1 is one
    assert compose(["schedule.warmup=0.25"])["schedule"]["warmup"] == 0.25
