"""A local task of lm-eval, and a mark of tests that need that library."""

import json

import pytest

needs_lm_eval = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('lm_eval')",
    reason='needs pip install "xformer_kit[eval]"',
)
ITEMS = [("the cat", "sat", "sta"), ("the mat", "was", "wsa"), ("a dog", "not", "ton")] * 3
TASK = """task: letters
dataset_path: json
dataset_kwargs: {{cache_dir: {cache}, data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""


def write_task(directory):
    """Returns a task file with the items; the data are a local file."""
    data = directory / "items.jsonl"
    rows = [{"context": c, "choices": choices, "answer": 0} for c, *choices in ITEMS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = directory / "letters.yaml"
    file.write_text(TASK.format(data=data, cache=directory / "datasets"))
    return file
