"""A page of cards, figures and tables: what all pages but that of a comparison are."""

from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ficco_sim.pages.figures import Drawing
from ficco_sim.pages.render import inlined, render
from ficco_sim.pages.tables import Table, markdown

__all__ = ["MAX_ROWS", "Document", "Section", "card", "document_html", "document_markdown"]

MAX_ROWS = 2000  # of a table; more would make the page too large


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A figure, a table or both under one heading."""

    heading: str
    hint: str = ""
    drawing: Drawing | None = None
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All that a page says, in its order.

    Parameters
    ----------
    kind
        What the page is about, in a few words.
    verdict
        The summary sentence.
    cards
        Heading, value and words of each.
    remarks
        What a reader must know beside the verdict: labels and notes.
    facts
        What the page rests on, by name; version and command are added.
    command
        The command line that makes the page, without folders.
    """

    kind: str
    title: str
    verdict: str
    cards: tuple[dict[str, str], ...]
    remarks: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]
    glossary: tuple[tuple[str, str], ...]
    command: str

    @property
    def drawings(self) -> list[Drawing]:
        """The figures, in the order of the page."""
        return [section.drawing for section in self.sections if section.drawing is not None]


def card(heading: str, value: str, words: str) -> dict[str, str]:
    """A card of the summary."""
    return {"heading": heading, "value": value, "words": words}


def document_html(document: Document) -> str:
    """HTML text that needs nothing else; every name in it is escaped."""
    sections: list[dict[str, Any]] = [
        {
            "heading": section.heading,
            "hint": section.hint,
            "figure": inlined([section.drawing])[0] if section.drawing is not None else None,
            "table": section.table,
        }
        for section in document.sections
    ]
    return render(
        "document.html",
        kind=document.kind,
        title=document.title,
        verdict=document.verdict,
        cards=document.cards,
        remarks=document.remarks,
        sections=sections,
        facts=(
            *document.facts,
            ("version", f"ficco {metadata.version('ficco')}"),
            ("command", document.command),
        ),
        glossary=document.glossary,
        data={"timelines": []},
    )


def document_markdown(document: Document) -> str:
    """The verdict, the remarks and all tables, as Markdown."""
    tables = [section.table for section in document.sections if section.table is not None]
    return markdown(document.title, document.verdict, document.remarks, tables)
