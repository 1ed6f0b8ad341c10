"""xformer eject: a model as one file of plain PyTorch."""

import importlib.util
import subprocess
import sys

import pytest
import torch

from tasks.cli import main
from xformer_kit import load


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_a_run_is_ejected_with_its_weights(finished, tmp_path, capsys):
    path = tmp_path / "model.py"
    assert main(["eject", str(finished), "--to", str(path)]) == 0
    assert "Its logits equal those of the model." in capsys.readouterr().out
    ours = load(finished)
    theirs = imported(path).load(str(path.with_suffix(".safetensors")))
    ids = torch.randint(0, ours.vocab_size, (2, 9))
    with torch.no_grad():
        assert torch.equal(theirs(ids), ours(ids))
    generated = ours.generate(ids, max_new_tokens=5, temperature=0.0)
    assert torch.equal(theirs.generate(ids, 5), generated)
    drawn = theirs.generate(ids, 5, temperature=1.0)
    assert drawn.shape == (2, 14) and drawn.max() < ours.vocab_size


def test_adapters_are_merged(begin, tmp_path):
    _, run = begin("run", "trainer.max_steps=1", "lora.rank=2")
    path = tmp_path / "model.py"
    assert main(["eject", str(run), "--to", str(path)]) == 0
    theirs = imported(path).load(str(path.with_suffix(".safetensors")))
    assert not any("lora" in name for name in theirs.state_dict())


def test_a_fresh_mixture_is_trained(tmp_path):
    path = tmp_path / "mixtral.py"
    words = ["preset=mixtral", "model.dim=16", "model.layers=1", "attn.heads=2", "attn.kv_heads=1"]
    assert main(["eject", *words, "--to", str(path)]) == 0
    module = imported(path)
    model = module.Transformer(module.Config())
    model(torch.randint(0, 99, (2, 9))).log_softmax(-1).square().sum().backward()
    assert [name for name, p in model.named_parameters() if not p.grad.any()] == []


@pytest.mark.extended
def test_the_file_needs_torch_alone_and_passes_the_linter(tmp_path):
    path = tmp_path / "gemma.py"
    words = ["preset=gemma3", "model.dim=24", "model.layers=6", "attn.heads=4", "kernel=flex"]
    assert main(["eject", *words, "--to", str(path)]) == 0
    code = "import sys; sys.modules['xformer_kit'] = None; sys.path.insert(0, '.'); import gemma"
    command = [sys.executable, "-c", f"{code}; print(gemma.Config().dim)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "24\n", done.stderr
    for check in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, "--isolated", "--line-length=100", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["attn.score=entmax"], "attn.score: has no template, so that no file of PyTorch"),
        (["extra={deep_embed: {}}"], "extra.deep_embed: has no template"),
        (["--to", "model.txt"], "--to: must be the name of a Python file; got model.txt."),
        (["--to", "nowhere/model.py"], "--to: must be in a directory that exists"),
        (["--to", "there.py"], "--to: must not exist; got there.py."),
    ],
    ids=["component", "extra", "name", "directory", "exists"],
)
def test_what_cannot_be_written_is_refused(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.py").write_text("")
    to = [] if "--to" in words else ["--to", "model.py"]
    assert main(["eject", *words, *to]) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert not (tmp_path / "model.py").exists()


@pytest.mark.extended
def test_a_composition_of_no_family_is_exported_with_its_code(finished, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "exported"
    assert main(["export", str(finished), "--to", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "XformerForCausalLM, in modeling_xformer.py; load it with trust_remote_code=True" in out
    assert "is the composition of no published family that is known here. The nearest is" in err
    options = {"trust_remote_code": True}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    ours = load(finished)
    ids = torch.randint(0, ours.vocab_size, (2, 9))
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, ours(ids))
    generated = ours.generate(ids, max_new_tokens=5, temperature=0.0)
    assert torch.equal(theirs.generate(ids, max_new_tokens=5, min_new_tokens=5), generated)
    left = torch.ones_like(ids).index_fill(1, torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="pad the texts of a batch on the right"):
        theirs(ids, attention_mask=left)
    again = tmp_path / "again"
    theirs.save_pretrained(again)
    assert (again / "modeling_xformer.py").is_file()
