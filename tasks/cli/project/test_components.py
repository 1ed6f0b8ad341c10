"""The components of this project keep the laws: causality, caches, padding, kernels, gradients."""

import subprocess
import sys
from pathlib import Path


def test_the_components_keep_the_laws():
    file = Path(__file__).with_name("components.py")
    command = [sys.executable, "-m", "xformer_kit", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
