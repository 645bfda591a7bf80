"""The rule that follows from the cost model: estimate every plan in closed form, take the least.

`docs/closed_form.md` has the derivation. No threshold is tuned: what a machine is like comes from its
file, so that the rule carries over to any machine that has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from ficco_sim.heuristics.decision import Decision
from ficco_sim.heuristics.estimate import estimate_makespans
from ficco_sim.heuristics.rule import check_parameters
from ficco_sim.machine import Machine
from ficco_sim.units import format_seconds
from ficco_sim.workload import Workload

__all__ = ["ClosedForm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Takes the plan of the least estimated makespan; parameters correct what a model gets wrong.

    ``worth_it`` is how much faster than serial a plan must be, 1 for any gain. ``side_by_side``
    multiplies estimates of plans with several compute queues, for machines on which GEMMs side by side
    turn out faster or slower than their cost model says.
    """

    name: str = "closed-form"
    description: str = "Estimates each plan's makespan in closed form from the machine's costs."
    parameters: Mapping[str, float] = field(
        default_factory=lambda: {"worth_it": 1.0, "side_by_side": 1.0}
    )

    def with_parameters(self, **values: float) -> Self:
        """The same rule with other values.

        Raises
        ------
        RuleError
            If there is no such parameter, or the value is no number from 0 up.
        """
        check_parameters(self.name, self.parameters, values)
        return replace(self, parameters={**self.parameters, **values})

    def pick(self, workload: Workload, machine: Machine) -> Decision:
        """The schedule and knobs of the least estimate.

        Raises
        ------
        MachineError
            See `estimate_makespans`.
        """
        factor = self.parameters["side_by_side"]
        estimates = estimate_makespans(workload, machine)

        def corrected_s(number: int) -> float:
            found = estimates[number]
            return found.makespan_s * (factor if (found.compute_queues or 1) > 1 else 1.0)

        serial_s = estimates[0].makespan_s
        number = min(range(len(estimates)), key=corrected_s)
        if corrected_s(number) * self.parameters["worth_it"] > serial_s:
            number = 0
        best = estimates[number]
        gain = serial_s / corrected_s(number)
        return Decision(
            schedule=best.schedule,
            num_chunks=best.num_chunks,
            compute_queues=best.compute_queues,
            reason=f"estimated {format_seconds(corrected_s(number))}, {gain:.2f}x of serial, the least "
            f"of {len(estimates)} plans",
        )
