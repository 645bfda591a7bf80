"""How data gets from one gpu to another: along links that hardware routes, or forwarded by gpus."""

from ficco_sim.routing.bound import CutBound, all_gather_bound
from ficco_sim.routing.relay import relay
from ficco_sim.routing.routes import Route, Routes

__all__ = ["CutBound", "Route", "Routes", "all_gather_bound", "relay"]
