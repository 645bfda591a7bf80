"""Pages: one self-contained HTML file that says what a comparison found, and its figures as files."""

from ficco_sim.pages.compare_page import compare_page
from ficco_sim.pages.figures import comparison_figures
from ficco_sim.pages.files import write_figures
from ficco_sim.pages.subject import Subject, read_subject, simulate_subject
from ficco_sim.pages.sweep_page import sweep_page

__all__ = [
    "Subject",
    "compare_page",
    "comparison_figures",
    "read_subject",
    "simulate_subject",
    "sweep_page",
    "write_figures",
]
