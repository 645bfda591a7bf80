"""Topologies: what a machine's links amount to, its picture, and machines of a family."""

from ficco_sim.topology.bisection import Bisection, bisection
from ficco_sim.topology.describe import Description, Path, describe, find_path, widest_path
from ficco_sim.topology.make import make_machine_file
from ficco_sim.topology.picture import draw

__all__ = [
    "Bisection",
    "Description",
    "Path",
    "bisection",
    "describe",
    "draw",
    "find_path",
    "make_machine_file",
    "widest_path",
]
