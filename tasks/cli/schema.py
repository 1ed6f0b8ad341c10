"""Print the JSON Schema (draft 2020-12) of the config, with which editors complete and check the
YAML files of a project: experiments, presets, studies and whole configs. It has the components that
are registered: those of the package and of --components. Each has its options with type, default
and meaning. `xformer new` writes it to conf/schema.json of the project.
"""

import json
from collections.abc import Sequence
from typing import Any

from tasks.cli.command import import_files
from xformer_kit.text.user_path import user_path

SUMMARY = "the JSON Schema of the config, for editors and programs"
EXAMPLES = """examples:
  xformer schema
  xformer schema --out schema.json
  xformer schema --components components.py --out conf/schema.json"""
OPTIONS = {"--out FILE": "write it to FILE"}


def run(args: Any) -> int:
    text = schema_text(args.components)
    if args.out is None:
        print(text, end="")
    else:
        user_path(args.out).write_text(text, encoding="utf-8")
    return 0


def schema_text(components: Sequence[str]) -> str:
    """Returns the schema as JSON, after importing the user's components."""
    import_files([*components])
    from xformer_kit.json_schema import config_schema

    return json.dumps(config_schema(), indent=1) + "\n"
