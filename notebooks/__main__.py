"""Execute the notebooks, and keep what they print and draw.

    python -m notebooks [NAME ...]      # those whose name starts so: 3, or 3_add_a_component; all
    without one

Each runs in a kernel of its own and in an empty directory, which is removed. What differs from one
run to the next, such as times, is not kept. A notebook that fails is left as it was and named at
the end, and the exit code is 1.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PATIENCE = 1_200  # seconds for one cell, on a machine that does other work
SETTINGS = {
    "OMP_NUM_THREADS": "1",  # sums are added in one order
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "WANDB_MODE": "disabled",
}


def notebooks(names: list[str] | None = None) -> list[Path]:
    """The notebooks whose file names start with one of these words."""
    return [
        path
        for path in sorted(FOLDER.glob("*.ipynb"))
        if path.name.startswith(tuple(names or [""]))
    ]


def executed(path: Path) -> Any:
    """The notebook with the outputs of a new run. Raises CellExecutionError, with its traceback,
    where a cell fails.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook_") as home:
        # no port of the machine's
        local = Config({"KernelManager": {"transport": "ipc", "ip": f"{home}/.socket"}})
        client = NotebookClient(
            notebook, timeout=PATIENCE, resources={"metadata": {"path": home}}, config=local
        )
        client.execute(env=_environment(home))
    return kept(notebook)


def kept(notebook: Any) -> Any:
    """The same without what differs from one run to the next."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = list(_joined(cell.outputs))
    notebook.metadata.pop("language_info", None)
    return notebook


def _joined(outputs: list[Any]) -> Iterator[Any]:
    """What is printed in one go comes in as many pieces as the machine likes. In words a picture is
    an address.
    """
    last = None
    for output in outputs:
        if "image/png" in output.get("data", {}):
            output.data.pop("text/plain", None)
        if output.output_type == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
            continue
        last = output if output.output_type == "stream" else None
        yield output


def _environment(home: str) -> dict[str, str]:
    """A kernel's variables: it finds this package, and what it writes for itself lies in the
    directory.
    """
    paths = os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | SETTINGS | {"PYTHONPATH": paths, "IPYTHONDIR": f"{home}/.ipython"}


def main(names: list[str]) -> int:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    failed = []
    for path in notebooks(names):
        print(path.name, flush=True)
        try:
            nbformat.write(executed(path), path)
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            failed.append(path.name)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
