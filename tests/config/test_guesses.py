"""What a user of Lightning, Hydra, Hugging Face or nanoGPT guesses is answered with ours."""

import pytest

from xformer_kit import compose
from xformer_kit.registry import ConfigError

GUESSES = {
    "model=encoder_decoder": "Choose task=seq2seq data=dates,",
    "model=t5": "Try task=seq2seq data=dates.",
    "model=gpt": "Try model=decoder.",
    "model=llama": "Try model=decoder.",
    "model=bert": "Try task=masked_language_modeling.",
    "model.depth=4": "Did you mean 'layers'?",
    "model.heads=4": "Try attn.heads.",
    "model.encoder_layers=2": "Try model.encoder.layers=2.",
    "attn.head=8": "Did you mean 'heads'?",
    "attn.n_heads=8": "Did you mean 'heads'?",
    "attn.dropout_rate=0.1": "Did you mean 'dropout'?",
    "attn.window=128": "Try mask.window=128.",
    "attn.causal=true": "Set mask=causal or mask=full.",
    "attn=flash_attention": "Try kernel=sdpa.",
    "attn=local": "Try mask=sliding_window.",
    "attn=mamba": "Did you mean 'gated_delta'?",
    "trainer.epochs=3": "Try trainer.max_epochs=3.",
    "trainer.gpus=2": "Try trainer.devices=2.",
    "trainer.lr=0.1": "Try optim.lr=0.1.",
    "trainer.precision=bf16": "Did you mean 'bf16-mixed'?",
    "optim.learning_rate=1e-3": "Did you mean 'lr'?",
    "optim=adam": "Did you mean 'adamw'?",
    "optim=sgd": "components=[my_optim.py]",
    "data=wikitext": "Try data=hub data.dataset=Salesforce/wikitext ",
    "data=book.txt": "Try data=text data.path=book.txt.",
    "data=corpus/docs.jsonl.gz": "Try data=jsonl data.path=corpus/docs.jsonl.gz.",
    "data=shakespeare": "Try data=text data.path=FILE.",
    "tokenizer=sentencepiece": "Did you mean 'unigram'?",
    "tokenizer=tiktoken": "Did you mean 'pretrained'?",
    "position=rotary_embedding": "Did you mean 'rotary'?",
    "position=RotaryEmbedding": "Did you mean 'rotary'?",
    "position=relative": "Did you mean 't5'?",
    "ffn.hidden=512": "Try ffn.width=512.",
    "ffn.hidden_dim=512": "Try ffn.width=512.",
    "ffn.act=gelu": "Did you mean 'activation'?",
    "mask=local": "Did you mean 'sliding_window'?",
    "norm.placement=post": "Try placement.",
    "norm=RMSNorm": "Did you mean 'rms'?",
    "schedule=onecycle": "Did you mean 'cosine'?",
    "schedule.warmup_ratio=0.1": "Multiply by trainer.max_steps and set schedule.warmup.",
    "kernel=flash_attention_2": "Did you mean 'sdpa'?",
    "logger=tb": "Did you mean 'tensorboard'?",
    "callbacks.model_checkpoint.monitor=val/loss": "Set checkpoints.metric and",
    "seed_everything=1": "Try seed=1.",
    "precision=bf16": "Try trainer.precision.",
    "batch_size=8": "Try data.batch_size.",
    "gpus=2": "Try trainer.devices=2.",
    "eval_iters=10": "Try trainer.limit_val_batches=10.",
    "preset=llama": "xformer components lists them.",
    "debug=true": "Try debug=fast.",
}


@pytest.mark.parametrize("guess", GUESSES)
def test_a_wrong_guess_is_answered_with_our_option_or_choice(guess):
    with pytest.raises(ConfigError) as error:
        compose([guess])
    assert GUESSES[guess] in str(error.value)
