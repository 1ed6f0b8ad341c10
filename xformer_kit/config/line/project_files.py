"""Files in the current directory that have what a command line names: conf/ and components of a
project, as `xformer new` writes them, if the line does not read them.
"""

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from xformer_kit.config.options.user_components import is_imported
from xformer_kit.files.saved_files import readable
from xformer_kit.text.command_lines import value

CONF = "conf"
MAX_FILES = 50  # Python files of the current directory that are searched
MAX_BYTES = 2**18  # of such a file
REGISTERED = re.compile(r"""\.register\(\s*["'](\w+)["']""")  # the name of a component


def config_hint(group: str, name: str) -> str:
    """Returns the sentence on ./conf/GROUP/NAME.yaml, and on the first Python file here with a
    component that it names; "" if there is none.
    """
    file = Path(CONF, group, f"{name}.yaml")
    try:
        if not file.is_file():
            return ""
        text = re.sub("#.*", "", file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a name that no file can have, or another encoding
        return ""
    words = set(re.findall(r"\w+", text))
    components = _file_with(lambda code: not words.isdisjoint(REGISTERED.findall(code)))
    added = f" and {_override(components)}" if components else ""
    return f"{file} is here: add --config-dir {CONF}{added}."


def component_hint(name: str) -> str:
    """Returns the sentence on the first Python file here that uses the package and has the name in
    quotes; "" if there is none. The text is searched, nothing is imported.
    """
    file = _file_with(lambda code: f'"{name}"' in code or f"'{name}'" in code)
    return f"{file} has it: add {_override(file)}." if file else ""


def _override(file: Path) -> str:
    """Returns the override that reads a file of components."""
    return f"components=[{value(str(file))}]"


def _file_with(matches: Callable[[str], bool]) -> Path | None:
    """Returns the first Python file here that uses the package and whose text matches."""
    for path in islice(sorted(Path().glob("*.py")), MAX_FILES):
        try:
            if path.stat().st_size > MAX_BYTES or is_imported(path):
                continue
            text = readable(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "xformer_kit" in text and matches(text):
            return path
    return None
