"""Results of the library as frames."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ficco_sim.io import to_plain
from ficco_sim.machine import Machine

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["parameter_changes", "records_frame"]


def records_frame(records: Sequence[Any]) -> "pd.DataFrame":
    """A row per record, such as `WhatIf`, and a column per field."""
    import pandas as pd

    return pd.DataFrame([to_plain(record) for record in records])


def parameter_changes(
    before: Machine, after: Machine, truth: Mapping[str, float], *, dtype: str = "bf16"
) -> "pd.DataFrame":
    """Rates of a calibrated machine over those before, beside what they should have become.

    Parameters
    ----------
    truth
        The factors that are known, by name: ``arithmetic``, ``copy kernels``, ``copy engines``.

    Returns
    -------
    DataFrame
        A row per parameter: ``parameter, before, after, unit, factor, truth``.
    """
    import pandas as pd

    def rates(machine: Machine) -> dict[str, float]:
        profile = machine.profile
        return {
            "arithmetic": profile.gemm.rates[dtype].flops_per_s_per_unit,
            "copy kernels": profile.core_copy.bytes_per_s,
            "copy engines": profile.copy.engine_bytes_per_s,
        }

    old, new = rates(before), rates(after)
    return pd.DataFrame(
        [
            {
                "parameter": name,
                "before": old[name],
                "after": new[name],
                "unit": "FLOP/s per compute unit" if name == "arithmetic" else "B/s",
                "factor": new[name] / old[name],
                "truth": factor,
            }
            for name, factor in truth.items()
        ]
    )
