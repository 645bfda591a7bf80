"""Templates filled in: every value is escaped, and one that is missing is an error."""

from collections.abc import Sequence
from importlib import resources
from typing import Any

from ficco_sim.pages.figures import Drawing
from ficco_sim.pages.style import to_inline

__all__ = ["inlined", "render"]


def render(template: str, **values: Any) -> str:
    """HTML text from a file in ``templates``."""
    from jinja2 import Environment, StrictUndefined
    from jinja2.loaders import FunctionLoader

    folder = resources.files("ficco_sim.pages") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def inlined(drawings: Sequence[Drawing]) -> list[dict[str, str]]:
    """Figures as a template takes them."""
    return [
        {
            "name": drawing.name,
            "heading": drawing.heading,
            "caption": drawing.caption,
            "svg": to_inline(drawing.figure, drawing.name, drawing.name, drawing.tips),
            "tips": "yes" if drawing.tips else "",
        }
        for drawing in drawings
    ]
