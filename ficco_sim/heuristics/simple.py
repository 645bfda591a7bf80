"""Rules to beat: always the same schedule, and what users of async tensor parallelism do by size."""

from ficco_sim.heuristics.decision import Decision
from ficco_sim.heuristics.features import Features
from ficco_sim.heuristics.rule import FeatureRule, Values
from ficco_sim.units import MIB, format_bytes

__all__ = ["always", "size_threshold"]


def always(schedule: str) -> FeatureRule:
    """The same schedule for everything, with default knobs."""
    decision = Decision(schedule=schedule, reason="always")
    return FeatureRule(
        name=f"always-{schedule}",
        description=f"Always {schedule}.",
        function=lambda _features, _values: decision,
    )


def size_threshold() -> FeatureRule:
    """Serial for few rows, shard by shard for little data, FiCCO for more.

    Parameters of the rule: ``serial_below_rows``, 4096 gathered rows: async tensor parallelism loses
    below and gains above on 8 gpus (pytorch/pytorch#179770). ``ficco_from_bytes``, 16 MiB gathered:
    with 8 gpus a chunk, a 64th of it, takes as long on a link of 50 GB/s as a copy command, 5 us.
    """
    return FeatureRule(
        name="size-threshold",
        description="By size: serial for few rows, shard-p2p for little data, else hetero-unfused-1d.",
        function=_by_size,
        parameters={"serial_below_rows": 4096, "ficco_from_bytes": 16 * MIB},
    )


def _by_size(f: Features, values: Values) -> Decision:
    rows, least_bytes = values["serial_below_rows"], values["ficco_from_bytes"]
    if f.m < rows:
        return Decision(schedule="serial", reason=f"{f.m} rows are fewer than {rows:g}")
    gathered = format_bytes(f.gathered_bytes)
    if f.gathered_bytes < least_bytes:
        return Decision(
            schedule="shard-p2p", reason=f"{gathered} gathered are below {format_bytes(least_bytes)}"
        )
    return Decision(
        schedule="hetero-unfused-1d",
        reason=f"{f.m} rows, and {gathered} gathered, are large enough to be cut",
    )
