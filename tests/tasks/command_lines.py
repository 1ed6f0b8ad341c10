"""The xformer command in this process: its exit code and what it prints."""

from tasks.cli import main

TINY = ["model.dim=32", "model.layers=2", "attn.heads=4", "data.seq_len=16", "data.batch_size=2"]


def output(capsys, *words):
    """(exit code, stdout, stderr) of a command line."""
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as exit_:
        code = exit_.code
    out = capsys.readouterr()
    return code, out.out, out.err


def fault(capsys, *words):
    """The sentence of the only fault: exit code 2, one line on stderr, nothing on stdout."""
    code, out, err = output(capsys, *words)
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    return err.strip()
