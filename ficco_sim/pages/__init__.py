"""Pages: one self-contained HTML file that says what a result found, and its figures as files."""

from ficco_sim.pages.compare_page import compare_page
from ficco_sim.pages.document import Document, document_html
from ficco_sim.pages.figures import comparison_figures
from ficco_sim.pages.files import write_figures
from ficco_sim.pages.results import MAX_PAGE_BYTES, read_result
from ficco_sim.pages.subject import Subject, simulate_subject

__all__ = [
    "MAX_PAGE_BYTES",
    "Document",
    "Subject",
    "compare_page",
    "comparison_figures",
    "document_html",
    "read_result",
    "simulate_subject",
    "write_figures",
]
