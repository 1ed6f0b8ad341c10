"""A corpus: python train.py components=[docs/examples/folder.py] data=folder"""

from dataclasses import dataclass
from pathlib import Path

from xformer_kit.data.corpus import CORPORA, Corpus, hash_fraction
from xformer_kit.registry import Fault


@CORPORA.register("folder")
@dataclass(kw_only=True, eq=False)
class Folder(Corpus):
    """The files of a folder whose names match a pattern, one document each; of ten, two are for
    validation.
    """

    documents = True

    path: str = "docs/guide"  # folder
    pattern: str = "**/*.md"  # names of files, as of Path.glob

    @classmethod
    def check(cls, options, context):
        if not Path(options.path).is_dir():
            yield Fault("path", "no folder has this name", got=options.path)

    def stamp(self):
        status = [file.stat() for file in sorted(Path(self.path).glob(self.pattern))]
        return [*super().stamp(), *((one.st_size, one.st_mtime_ns) for one in status)]

    def texts(self, split):
        for file in sorted(Path(self.path).glob(self.pattern)):
            if (hash_fraction(file.name) < 0.2) == (split == "valid"):
                yield file.read_text(encoding="utf-8")
