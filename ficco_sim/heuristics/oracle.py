"""The simulator as a rule: the best that it knows, at the cost of simulating everything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ficco_sim.comparison import compare
from ficco_sim.heuristics.decision import Decision
from ficco_sim.heuristics.rule import check_parameters
from ficco_sim.machine import Machine
from ficco_sim.schedules import FICCO
from ficco_sim.workload import Workload

__all__ = ["Oracle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Simulates all schedules with all knobs that `compare` tries, and takes the fastest.

    It is right in simulations by construction, so that what it tells is its cost (the seconds of its
    `Pick`), and how often other rules agree with it.
    """

    name: str = "oracle"
    description: str = "Simulates every schedule and takes the fastest; right by construction, slow."
    parameters: Mapping[str, float] = field(default_factory=dict)

    def with_parameters(self, **values: float) -> Self:
        """Itself: it has no parameters.

        Raises
        ------
        RuleError
            If any is given.
        """
        check_parameters(self.name, self.parameters, values)
        return self

    def pick(self, workload: Workload, machine: Machine) -> Decision:
        """The fastest plan's schedule and knobs.

        Raises
        ------
        FiccoError
            As `compare`.
        """
        found = compare(workload, machine, intervals=False)
        best = found.results[0]
        tuned = best.schedule in FICCO
        return Decision(
            schedule=best.schedule,
            num_chunks=best.num_chunks if tuned else None,
            compute_queues=best.compute_queues if tuned else None,
            engine=best.engine,
            reason=f"fastest of {len(found.results)} plans simulated, {best.speedup:.2f}x of serial",
        )
