"""Files for other programs: Chrome traces, Chakra execution traces, JSON schemas of our own files."""

from ficco_sim.interchange.chakra import chakra_traces, write_chakra
from ficco_sim.interchange.chrome import chrome_events, write_chrome
from ficco_sim.interchange.schemas import SCHEMAS, schema_text

__all__ = [
    "SCHEMAS",
    "chakra_traces",
    "chrome_events",
    "schema_text",
    "write_chakra",
    "write_chrome",
]
