"""Examples of a user's classes are read in a process that has not imported the user's file."""

import pickle
import sys

import pytest
import torch

from xformer_kit.config import GROUPS
from xformer_kit.config.options.user_components import import_components
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.examples import Examples
from xformer_kit.files.user_modules import module_name
from xformer_kit.registry import ConfigError

SOURCE = """
from xformer_kit.data.corpus import CORPORA, Corpus
import numpy as np

@CORPORA.register("mine")
class Mine(Corpus):
    '''One example.'''

    def __len__(self):
        return 1

    def __getitem__(self, i):
        return {"tokens": np.full(3, 7)}
"""


def test_a_process_without_the_users_module_makes_it(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    name = module_name(file)
    try:
        import_components([str(file)], GROUPS.values())
        content = pickle.dumps(Examples(CORPORA["mine"](), None, 0))
        CORPORA.forget(name)
        del sys.modules[name]
        # the content at the import, not a later one, is what the training process has
        file.write_text("raise RuntimeError")
        assert "mine" not in CORPORA
        assert pickle.loads(content)[0]["tokens"].tolist() == [7, 7, 7]
        assert "mine" in CORPORA and name in sys.modules
    finally:
        CORPORA.forget(name)
        sys.modules.pop(name, None)


def test_a_file_that_cannot_be_imported_leaves_no_module(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text("raise ValueError")
    with pytest.raises(ConfigError):
        import_components([str(file)], GROUPS.values())
    assert module_name(file) not in sys.modules


def test_examples_without_users_classes_are_pickled_too():
    examples = pickle.loads(pickle.dumps(Examples([{"tokens": torch.arange(2)}], None, 3)))
    assert examples.seed == 3 and len(examples) == 1
