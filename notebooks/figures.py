"""Run the notebooks and write all their figures and numbers: python notebooks/figures.py FOLDER.

Each figure becomes NAME.png, NAME.svg and NAME.csv. Nothing is written unless all notebooks run. With
names after the folder, such as 3_schedules, only these run. ``make figures`` calls this.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from ficco_sim.errors import FileError
from ficco_sim.pages.files import check_folder
from ficco_sim.studies import MIME, write_shown

FOLDER = Path(__file__).parent
TIMEOUT_S = 600  # of one cell, on a busy machine


def notebooks() -> list[Path]:
    """All of them, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def run(path: Path) -> nbformat.NotebookNode:
    """A notebook with its outputs, run from the top in its folder; the file stays as it is.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # sockets that are files, where there are such: nobody else can connect to the kernel
        ways = {"transport": "ipc", "ip": f"{sockets}/kernel"} if os.name == "posix" else {}
        client = NotebookClient(
            notebook,
            config=Config({"KernelManager": ways}),
            timeout=TIMEOUT_S,
            resources={"metadata": {"path": str(path.parent)}},
        )
        return client.execute()


def shown_pictures(notebook: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """What a notebook that ran shows of its pictures: data of outputs, by type."""
    return [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if MIME in output.get("data", {})
    ]


def complaints(notebook: nbformat.NotebookNode) -> str:
    """What cells of a notebook that ran wrote to the error stream, such as warnings."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(o["text"] for o in outputs if o.get("name") == "stderr")


def main(arguments: list[str]) -> int:
    """Run and write; the exit code: 0, 1 if a notebook fails or warns, 2 for bad arguments."""
    if not arguments or arguments[0].startswith("-"):
        return failed("usage: python notebooks/figures.py FOLDER [NOTEBOOK ...]")
    folder = Path(arguments[0])
    known = {path.stem: path for path in notebooks()}
    for name in arguments[1:]:
        if name not in known:
            return failed(f"{name}: no such notebook; one of: {', '.join(known)}")
    try:
        check_folder(folder)
        found = []
        for name in arguments[1:] or known:
            start_s = time.perf_counter()
            notebook = run(known[name])
            if complaint := complaints(notebook):
                return failed(f"{name}: a cell wrote to the error stream: {complaint}", code=1)
            found += shown_pictures(notebook)
            print(f"{name}: {time.perf_counter() - start_s:.0f} s", flush=True)  # noqa: T201
        folder.mkdir(exist_ok=True)
        written = [path for shown in found for path in write_shown(shown, folder)]
    except FileError as error:
        return failed(str(error))
    except CellExecutionError as error:
        return failed(f"{name}: {error}", code=1)
    print(f"{len(found)} figures, {len(written)} files in {folder}")  # noqa: T201
    return 0


def failed(message: str, code: int = 2) -> int:
    """Say why; the exit code."""
    print(message, file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
