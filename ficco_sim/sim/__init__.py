"""Discrete-event simulation of plans on machines."""

from ficco_sim.sim.engine import communication_only, simulate

__all__ = ["communication_only", "simulate"]
