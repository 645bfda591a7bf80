"""Our own machine files, YAML or JSON, so that import takes them like the others."""

import re
from dataclasses import replace

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.machine import MachineFile
from ficco_sim.readers.types import Notes, Options, Reading

__all__ = ["is_own", "read_own"]

FIRST_KEY = re.compile(r"[\"']?\w+[\"']?\s*:(\s|\Z)")
MAX_YAML = 2**19  # the parser needs seconds for this much
KINDS = {"full_mesh": "mesh"}


def is_own(text: str) -> bool:
    """Whether the text is a YAML or JSON mapping; which keys it needs is checked on reading."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(("#", "---", "%"))), "")
    return first.startswith("{") or FIRST_KEY.match(first) is not None


def read_own(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read a machine file; options replace what it says of every link.

    Raises
    ------
    FileError, MachineError
        Naming the file, the key, the value and the rule.
    """
    is_json = text.lstrip().startswith("{")
    if not is_json and len(text) > MAX_YAML:
        raise FileError(
            f"{where}: {len(text):,} characters of YAML; at most {MAX_YAML:,} are read, more as JSON"
        )
    document = io.parse_json(text, where) if is_json else io.parse_yaml(text, where)
    file = io.decode(document, MachineFile, where)
    sources = dict(file.sources)
    if options.gpu is not None:
        file = replace(file, gpu=options.gpu)
        sources = {key: value for key, value in sources.items() if not key.startswith("gpu.")}
    topology = file.topology
    if options.bandwidth_bytes_per_s or options.latency_s is not None or options.usable_share:
        sources["topology"] = "estimated: links changed on import, else: " + next(
            (v for k, v in file.sources.items() if k.startswith("topology")), "not given"
        )
        sources = {k: v for k, v in sources.items() if not k.startswith("topology.")}
        if topology.links is None:
            rate = options.bandwidth_bytes_per_s or topology.bandwidth_bytes_per_s
            assert rate is not None  # every family but links has one
            topology = replace(
                topology,
                bandwidth_bytes_per_s=rate,
                usable_bytes_per_s=_usable(rate, topology.usable_bytes_per_s, options),
                latency_s=topology.latency_s if options.latency_s is None else options.latency_s,
            )
        else:
            links = []
            for link in topology.links:
                total = link.bandwidth_bytes_per_s
                if options.bandwidth_bytes_per_s is not None:
                    total = options.bandwidth_bytes_per_s * link.width
                links.append(
                    replace(
                        link,
                        bandwidth_bytes_per_s=total,
                        usable_bytes_per_s=_usable(total, link.usable_bytes_per_s, options),
                        latency_s=link.latency_s if options.latency_s is None else options.latency_s,
                    )
                )
            topology = replace(topology, links=tuple(links))
    notes.facts["num_gpus"] = file.num_gpus
    family = topology.family
    file = replace(file, topology=topology, sources=sources)
    return Reading(file=file, kind=KINDS.get(family, family))


def _usable(rate: float, before: float | None, options: Options) -> float | None:
    """A new rate is usable in full unless a share is given; an old one keeps what the file says."""
    if options.usable_share is not None:
        return rate * options.usable_share
    return before if options.bandwidth_bytes_per_s is None else None
