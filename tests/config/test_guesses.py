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
    "model.heads=4": "Try attn.heads=4.",
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
    "norm.placement=post": "Try placement=post.",
    "norm=RMSNorm": "Did you mean 'rms'?",
    "schedule=onecycle": "Did you mean 'cosine'?",
    "schedule.warmup_ratio=0.1": "Multiply by trainer.max_steps and set schedule.warmup.",
    "kernel=flash_attention_2": "Did you mean 'sdpa'?",
    "logger=tb": "Did you mean 'tensorboard'?",
    "callbacks.model_checkpoint.monitor=val/loss": "Set checkpoints.metric and",
    "seed_everything=1": "Try seed=1.",
    "precision=bf16": "Try trainer.precision=bf16-mixed.",
    "batch_size=8": "Try data.batch_size=8.",
    "gpus=2": "Try trainer.devices=2.",
    "eval_iters=10": "Try trainer.limit_val_batches=10.",
    "preset=llama": "xformer components lists them.",
    "debug=true": "Try debug=fast.",
    "dtype=bfloat16": "Try trainer.precision=bf16-mixed.",
    "dtype=torch.float16": "Try trainer.precision=16-mixed.",
    "trainer.precision=bfloat16": "Did you mean 'bf16-mixed'?",
    "trainer.precision=float16": "Did you mean '16-mixed'?",
    "compile=True": "Try trainer.compile=true.",
    "dropout=0.1": "Try attn.dropout=0.1, ffn.dropout=0.1 or model.dropout=0.1.",
    "lora=true": "Try lora.rank=8.",
    "callbacks.early_stopping.monitor=val_loss": "Try callbacks.early_stopping.metric=val/loss.",
    "logger.offline=true": "write WANDB_MODE=offline in front of the command.",
    "pos=rope": "Try position=rope.",
    "data.path=book.txt": "Try data=text data.path=book.txt.",
    "data.path='my book.txt'": "Try data=text \"data.path='my book.txt'\".",
    "data.path=pairs.jsonl.gz": "Try data=jsonl data.path=pairs.jsonl.gz.",
    "model=gpt2": "docs/guide/architectures.md has the lines of published architectures. Try ",
    "model=Qwen2.5-0.5B": "has the lines of published architectures. Try model=decoder.",
    "dry_run=true": "Set study.dry_run=true for a study; for a run --cfg job prints the config",
}


@pytest.mark.parametrize("guess", GUESSES)
def test_a_wrong_guess_is_answered_with_our_option_or_choice(guess):
    with pytest.raises(ConfigError) as error:
        compose([guess])
    assert GUESSES[guess] in str(error.value)
