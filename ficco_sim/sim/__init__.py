"""Discrete-event simulation of plans on machines."""

from ficco_sim.sim.simulate import communication_only, simulate

__all__ = ["communication_only", "simulate"]
