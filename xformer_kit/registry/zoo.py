"""Names of the rare components in xformer_kit/zoo, without importing them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType

ZOO = Path(__file__).parents[1] / "zoo"
PACKAGE = f"{__name__.partition('.')[0]}.zoo"


@cache
def zoo_modules(group: str) -> Mapping[str, str]:
    """Returns {component: module} of the folder xformer_kit/zoo/`group`, sorted by name.

    A file has the name of its component; files with a leading underscore are shared helpers.
    """
    names = sorted(module.name for module in iter_modules([str(ZOO / group)]))
    found = {name: f"{PACKAGE}.{group}.{name}" for name in names if not name.startswith("_")}
    return MappingProxyType(found)
