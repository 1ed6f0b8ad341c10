"""Files in the current directory that have what a command line names: conf/ and components of a
project, as `xformer new` writes them, if the line does not read them.
"""

from itertools import islice
from pathlib import Path

from xformer_kit.config.components import is_imported
from xformer_kit.registry.command_lines import value

CONF = "conf"
MAX_FILES = 50  # Python files of the current directory that are searched
MAX_BYTES = 2**18  # of such a file


def config_hint(group: str, name: str) -> str:
    """Returns the sentence on ./conf/GROUP/NAME.yaml; "" if there is none."""
    file = Path(CONF, group, f"{name}.yaml")
    try:
        return f"{file} is here: add --config-dir {CONF}." if file.is_file() else ""
    except (OSError, ValueError):  # a name that no file can have
        return ""


def component_hint(name: str) -> str:
    """Returns the sentence on the first Python file here that uses the package and has the name in
    quotes; "" if there is none. The text is searched, nothing is imported.
    """
    if (file := _file_with(name)) is None:
        return ""
    return f"{file} has it: add components=[{value(str(file))}]."


def _file_with(name: str) -> Path | None:
    for path in islice(sorted(Path().glob("*.py")), MAX_FILES):
        try:
            if path.stat().st_size > MAX_BYTES or is_imported(path):
                continue
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "xformer_kit" in text and (f'"{name}"' in text or f"'{name}'" in text):
            return path
    return None
