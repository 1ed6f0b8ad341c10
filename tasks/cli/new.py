"""Write a small project that uses xformer_kit as a library: an experiment and a study of its own, a
component, a script that trains with them, a test, and the JSON Schema with which an editor checks
its YAML files.
"""

import re
from pathlib import Path
from typing import Any

from tasks.cli.schema import schema_text
from xformer_kit.registry import config_error
from xformer_kit.text.command_lines import for_shell
from xformer_kit.text.user_path import user_path

SUMMARY = "write a small project of your own: conf/, a component, a test"
EXAMPLES = """examples:
  xformer new my_project
  xformer new path/to/my_project
  cd my_project && ./train.sh"""
OPTIONS = {"project PROJECT": "the new directory; its name has letters, digits, _ and -"}
NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
TEMPLATE = Path(__file__).with_name("project")
PLACEHOLDER = "PROJECT"  # in the files, for the name
SCHEMA = "conf/schema.json"  # which the headers of YAML files name


def run(args: Any) -> int:
    """Writes the project. Raises ConfigError for a name that is no name or exists."""
    directory = user_path(args.project)
    name = directory.name
    if not NAME.fullmatch(name):
        rule = "must be a name of letters, digits, _ and - that begins with a letter"
        raise config_error("project", rule, got=repr(args.project), fix="Try my_project.")
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        rule, fix = f"cannot be made ({error.strerror})", "Take another name."
        raise config_error("project", rule, got=str(directory), fix=fix) from None
    files = sorted(path for path in TEMPLATE.rglob("*.*") if path.suffix != ".pyc")
    for source in files:
        target = directory / source.relative_to(TEMPLATE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace(PLACEHOLDER, name)
        target.write_text(text, encoding="utf-8")
        print(target)
    (directory / "train.sh").chmod(0o755)
    schema = directory / SCHEMA
    schema.write_text(schema_text([str(directory / "components.py")]), encoding="utf-8")
    print(schema)
    print(f"\n  $ cd {for_shell(str(directory))} && ./train.sh")
    return 0
