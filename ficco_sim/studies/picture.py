"""A figure with the numbers behind it, as a notebook shows it and as files."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ficco_sim.io import check_target, write_bytes
from ficco_sim.pages.style import to_png, to_svg

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["MIME", "Picture", "write_shown"]

MIME = "application/vnd.ficco.figure+json"
"""Under this type a notebook's output holds name, SVG and CSV, beside the PNG that it shows."""
WIDTH_PIXELS = 820


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure, and the frame that it was drawn from; the last line of a notebook's cell shows it.

    Parameters
    ----------
    name
        Of its files: letters, digits and hyphens.
    """

    name: str
    figure: "Figure"
    frame: "pd.DataFrame"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {
            "image/png": b64encode(to_png(self.figure)).decode(),
            "text/plain": f"figure {self.name}, {len(self.frame)} rows of numbers",
            MIME: {
                "name": self.name,
                "svg": to_svg(self.figure).decode(),
                "csv": self.frame.to_csv(index=False, lineterminator="\n"),
            },
        }
        return data, {"image/png": {"width": WIDTH_PIXELS}}


def write_shown(shown: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write what a notebook showed of a picture: NAME.png, NAME.svg and NAME.csv.

    Parameters
    ----------
    shown
        Data of the output, by type.

    Raises
    ------
    FileError
        If one of them cannot be written; each is written whole or not at all.
    """
    parts = shown[MIME]
    files = {
        "png": b64decode(shown["image/png"]),
        "svg": parts["svg"].encode(),
        "csv": parts["csv"].encode(),
    }
    paths = {suffix: folder / f"{parts['name']}.{suffix}" for suffix in files}
    for path in paths.values():
        check_target(path)
    for suffix, path in paths.items():
        write_bytes(path, files[suffix])
    return list(paths.values())
