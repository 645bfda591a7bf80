"""What is done for one scenario of a sweep, in this process or in a worker."""

from dataclasses import dataclass

from ficco_sim.comparison import compare, find_makespans
from ficco_sim.costs import CostKind, CostModel, Submission
from ficco_sim.errors import FiccoError
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine
from ficco_sim.sweep.rows import SweepRow, rows_of_comparison, rows_of_makespans
from ficco_sim.workload import Workload

__all__ = ["Evaluator", "Setting", "Task"]

RENEW_AFTER = 1_000  # scenarios: a cost model keeps every shape that it has seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all scenarios of a sweep share."""

    machines: tuple[Machine, ...]
    grid: Grid
    costs: CostKind = "profile"
    submission: Submission = "graph"
    makespans_only: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One scenario on one machine: its place in the table, the workload, and the machine's place."""

    index: int
    workload: Workload
    machine: int


class Evaluator:
    """Simulates scenarios of one sweep, one after another."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._models: dict[int, CostModel] = {}
        self._count = 0

    def __call__(self, task: Task) -> list[SweepRow] | str:
        """Rows of one scenario on one machine, or what is wrong with it."""
        setting = self._setting
        machine, grid = setting.machines[task.machine], setting.grid
        try:
            costs = self._model(task.machine)
            if setting.makespans_only:
                found = find_makespans(task.workload, machine, costs=costs, grid=grid)
                return rows_of_makespans(
                    found, task.workload, machine, grid, setting.costs, setting.submission
                )
            compared = compare(task.workload, machine, costs=costs, grid=grid, intervals=False)
            return rows_of_comparison(compared, task.workload, machine, grid)
        except FiccoError as error:
            return str(error)
        except MemoryError:
            return "not enough memory"
        except Exception as error:  # noqa: BLE001 - one scenario must not end a sweep of thousands
            return f"internal error, please report: {type(error).__name__}: {error}"

    def _model(self, machine: int) -> CostModel:
        """The costs of a machine: made once, since a table of measured shapes takes 0.2 s to fit."""
        if self._count % RENEW_AFTER == 0:
            self._models.clear()
        self._count += 1
        if machine not in self._models:
            setting = self._setting
            self._models[machine] = CostModel(
                setting.machines[machine], setting.costs, setting.submission
            )
        return self._models[machine]
