"""The files of components in the guides train, and are evaluated and measured."""

import csv
import json
import re
import sqlite3
from pathlib import Path

import pytest

from tests.user_components import forget_user_components
from xformer_kit import compose
from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.config.options.logger_options import LOGGERS
from xformer_kit.data import prepare
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.metrics import METRICS
from xformer_kit.objective import OBJECTIVES

DOCS = Path(__file__).parents[2] / "docs"
GUIDES, EXAMPLES = DOCS / "guide", DOCS / "examples"


def guide_file(page, name, folder):
    """Writes a file of a guide page and returns its path."""
    text = (GUIDES / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(rf"```python\n# {name}\n(.*?)```", text, flags=re.DOTALL)
    (folder / name).write_text(found.group(1))
    return folder / name


@pytest.fixture(autouse=True)
def forget():
    yield
    forget_user_components([METRICS, OBJECTIVES, TOKENIZERS, CORPORA, LOGGERS, CALLBACKS])


@pytest.mark.parametrize("words", [(), ("task.rate=0.5",)])
def test_the_task_of_the_guide_trains(begin, tmp_path, words):
    file = guide_file("own_task", "my_task.py", tmp_path)
    small = ("model=encoder", "trainer.max_steps=2", "trainer.val_every=2", "metrics.f1={}")
    code, run = begin("run", f"components=[{file}]", "task=replaced_tokens", *small, *words)
    summary = json.loads((run / "summary.json").read_text())
    assert code == 0 and 0 < summary["val/loss"] < 5 and 0 <= summary["val/f1"] <= 1


def test_the_tokenizer_of_the_guide_trains(begin, tmp_path):
    file = guide_file("own_tokenizer", "my_tokenizer.py", tmp_path)
    words = (f"components=[{file}]", "tokenizer=byte_pairs_once", "tokenizer.pairs=9")
    code, run = begin("run", *words, "trainer.max_steps=2", "trainer.val_every=2")
    saved = json.loads((run / "tokenizer.json").read_text())
    assert code == 0 and len(saved["state"]["pairs"]) == 9


def test_the_corpora_of_the_guide_train(begin, tmp_path):
    file = guide_file("own_data", "my_data.py", tmp_path)
    with sqlite3.connect(tmp_path / "texts.db") as database:
        database.execute("CREATE TABLE documents (text TEXT)")
        rows = [(f"row {i} of the table",) for i in range(300)]
        database.executemany("INSERT INTO documents VALUES (?)", rows)
    sqlite = ("data=sqlite", f"data.path={tmp_path}/texts.db", "trainer.val_every=2")
    code, _ = begin("run", f"components=[{file}]", *sqlite, "trainer.max_steps=2")
    assert code == 0
    file = guide_file("own_data", "my_probe.py", tmp_path)
    train = prepare(compose([f"components=[{file}]", "data=modular_sum"])).train
    a, b, _, total = train[5]["tokens"].tolist()
    assert total == (a + b) % 10 and train[5]["labels"].tolist() == [-1, -1, -1, total]


def test_the_metrics_of_the_guide_are_measured(begin, tmp_path):
    file = guide_file("own_metric", "my_metrics.py", tmp_path)
    small = ("trainer.max_steps=2", "trainer.val_every=2", "metrics.mean_rank.cap=50")
    code, run = begin("run", f"components=[{file}]", *small)
    (row,) = [r for r in csv.DictReader((run / "metrics.csv").open(newline="")) if r["val/loss"]]
    assert code == 0 and 1 <= float(row["val/mean_rank"]) <= 50
    guide_file("own_metric", "more_metrics.py", tmp_path)


@pytest.mark.extended
def test_the_examples_without_laws_run(begin):
    files = [f"{EXAMPLES / name}.py" for name in ("json_lines", "reciprocal_rank", "weight_norm")]
    words = ("logger=json_lines", "metrics.reciprocal_rank={}", "callbacks.weight_norm.every=1")
    small = ("trainer.max_steps=2", "trainer.val_every=2", "trainer.log_every_n_steps=1")
    code, run = begin("run", f"components=[{','.join(files)}]", *words, *small)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = list(csv.DictReader((run / "metrics.csv").open(newline="")))
    assert code == 0 and [line["step"] for line in lines if "train/loss" in line] == [1, 2]
    assert 0 < float(rows[-1]["val/reciprocal_rank"]) <= 1 and float(rows[0]["weight_norm"]) > 0
    logged = [line["val/reciprocal_rank"] for line in lines if "val/reciprocal_rank" in line]
    assert logged == [pytest.approx(float(rows[-1]["val/reciprocal_rank"]))]
