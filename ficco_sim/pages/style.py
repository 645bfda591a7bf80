"""One style for all figures: colours told apart by colour-blind readers and in grey, units on axes."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BAD", "GOOD", "INK", "MUTED", "PART_STYLES", "new_figure", "to_inline", "to_png", "to_svg"]

# Okabe and Ito's colours
GOOD, BAD, MUTED = "#0072B2", "#D55E00", "#999999"
# parts of a makespan: colour and hatch, so that neighbours differ in grey too
PART_STYLES = {
    "gemm_s": ("#0072B2", ""),
    "decomposition_s": ("#E69F00", "///"),
    "contention_s": ("#009E73", "..."),
    "exposed_comm_s": ("#CC79A7", "xxx"),
    "submission_s": ("#F0E442", "---"),
}
INK = "#010203"  # stands for the colour of text, which is the reader's on a page
WIDTH_INCHES = 5.2  # readable when a page of 390 px scales it down
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names from files may hold dollar signs
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.5,
    "hatch.color": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def new_figure(height_inches: float) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure with one set of axes, to be drawn on within the context, where the style holds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        yield figure, figure.add_subplot()


def to_svg(figure: "Figure") -> bytes:
    """An SVG file; the same figure gives the same bytes."""
    return _saved(figure, "svg").replace(INK.encode(), b"#222222")


def to_png(figure: "Figure") -> bytes:
    """A PNG file."""
    return _saved(figure, "png")


def to_inline(
    figure: "Figure", name: str, title: str, tips: Mapping[str, Sequence[str]] | None = None
) -> str:
    """An SVG element for a page: text in the page's colour, ids of its own, no reference outside.

    Parameters
    ----------
    name
        Opens every id, which must be unique on a page.
    title
        What a screen reader says of it; letters, digits, spaces and commas.
    tips
        See `Drawing`; becomes the attribute ``data-tip`` of each mark.
    """
    text = to_svg(figure).decode().replace("#222222", "currentColor")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    head, body = text.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    body = body.replace(' id="', f' id="{name}-').replace("url(#", f"url(#{name}-")
    body = body.replace('xlink:href="#', f'href="#{name}-')
    for gid, texts in (tips or {}).items():
        body = _with_tips(body, f'<g id="{name}-{gid}">', texts)
    return f'<svg {view[0]} role="img" aria-label="{title}">{body}'


def _with_tips(body: str, group: str, texts: Sequence[str]) -> str:
    """The marks of a group in the order in which they were drawn, each with its text."""
    left = list(reversed(texts))

    def add(mark: re.Match[str]) -> str:
        if mark[0].startswith("<defs") or not left:
            return mark[0]
        return f'{mark[0]}data-tip="{html.escape(left.pop())}" '

    start = body.find(group)
    if start < 0:
        return body
    return body[:start] + re.sub(r"<defs>.*?</defs>|<(?:use|path) ", add, body[start:], flags=re.DOTALL)


def _saved(figure: "Figure", kind: str) -> bytes:
    import matplotlib as mpl

    buffer = BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    with mpl.rc_context(SETTINGS | {"svg.hashsalt": "ficco"}):
        figure.savefig(
            buffer,
            format=kind,
            dpi=160,
            metadata=metadata,
            transparent=kind == "svg",
        )
    return buffer.getvalue()
