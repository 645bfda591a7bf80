"""How data gets from one gpu to another: along links that hardware routes, or forwarded by gpus."""

from ficco_sim.routing.relay import relay
from ficco_sim.routing.routes import Route, Routes

__all__ = ["Route", "Routes", "relay"]
