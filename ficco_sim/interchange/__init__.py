"""Files for other programs: Chrome and Perfetto traces, Chakra execution traces, JSON schemas."""

from ficco_sim.interchange.chakra import chakra_traces, write_chakra
from ficco_sim.interchange.chrome import chrome_events, write_chrome
from ficco_sim.interchange.perfetto import check_perfetto, write_perfetto
from ficco_sim.interchange.schemas import SCHEMAS, schema_text
from ficco_sim.interchange.viewer import NATIVE, write_viewer_trace

__all__ = [
    "NATIVE",
    "SCHEMAS",
    "chakra_traces",
    "check_perfetto",
    "chrome_events",
    "schema_text",
    "write_chakra",
    "write_chrome",
    "write_perfetto",
    "write_viewer_trace",
]
