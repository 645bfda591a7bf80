"""What it costs to get from one task to the next, and to submit them."""

from collections.abc import Callable

from ficco_sim.plan import Plan
from ficco_sim.records import Scalar
from ficco_sim.schedules import make_plan
from ficco_sim.units import US
from hw_validate.executor import bind
from hw_validate.memory import random_inputs
from hw_validate.microbench.bench import Bench, in_turn
from hw_validate.microbench.case import Built, Case, Named, compute_lane, span_s
from hw_validate.microbench.copies import TINY_BYTES, Copies, Rows, flow_lane, tiny_copy
from hw_validate.microbench.setup import Setup, parse_direction, place_name
from hw_validate.placement import HOST, Placement
from hw_validate.program import Launch, Run, Step

__all__ = ["chain_plan", "launch_cases"]

GUESSED_KERNEL_S = 5 * US
GUESSED_EAGER_STEP_S = 40 * US


def launch_cases(setup: Setup) -> Named:
    """Gaps in a queue, waits between queues, graphs against eager submission, nearly empty copies."""
    device = setup.device
    single = [d for d in setup.all_directions if len(parse_direction(d)) == 1]
    cases = [_events(setup)]
    for count in setup.sizes.kernels:
        cases += [
            _queue(setup, count),
            _ping_pong(setup, count, (device, device)),
            *(_ping_pong(setup, count, (device, other)) for other in setup.devices[1:2]),
            *(_after_copies(setup, count, d) for d in single if _onto(d, device)),
            *(_empty_copies(d, count) for d in single),
        ]
    return [
        ("launch", cases),
        ("submission", [_submission(setup, graph=graph) for graph in (True, False)]),
    ]


def chain_plan(setup: Setup) -> Plan:
    """The plan whose submission is timed: copies, gathers, GEMMs and scatters, step by step."""
    return make_plan(
        "hetero-fused-1d", setup.sizes.chain, setup.num_gpus, {"num_chunks": max(setup.num_chunks)}
    )


def _tiny(device: int) -> Copies:
    """A kernel so small that it is all start and end."""
    here = place_name(device)
    return Copies(
        direction=f"{here}>{here}",
        rows=Rows.contiguous(TINY_BYTES),
        engine="core",
        blocks=1,
        regions=1,
    )


def _onto(direction: str, device: int) -> bool:
    (flow,) = parse_direction(direction)
    return flow.dst == device != flow.src


def _case(
    what: str,
    count: int,
    params: dict[str, Scalar],
    copies: list[Copies],
    build: Callable[[Bench], Built],
    labels: tuple[str, ...] = (),
) -> Case:
    return Case(
        kind="launch",
        params={"what": what, "count": count, "nbytes": TINY_BYTES, **params},
        build=build,
        estimate_s=count * GUESSED_KERNEL_S,
        needs={slot: size for each in copies for slot, size in each.needs.items()},
        labels=labels,
    )


def _events(setup: Setup) -> Case:
    """A step without work: what events add to every time of a step."""

    def build(bench: Bench) -> Built:
        steps = [Step(id="nothing", lane=compute_lane(setup.device), launch=lambda _: None)]
        return Built(prepared=bench.prepare(steps), sample=lambda run: span_s(run, "nothing"))

    return _case("events", 1, {"device": place_name(setup.device)}, [], build)


def _queue(setup: Setup, count: int) -> Case:
    """Tiny kernels on one queue; a sample is the time per kernel."""
    tiny = _tiny(setup.device)

    def build(bench: Bench) -> Built:
        launch = in_turn(tiny.launches(bench, 0, count))
        steps = [Step(id="kernels", lane=compute_lane(setup.device), launch=launch)]
        return Built(prepared=bench.prepare(steps), sample=lambda run: span_s(run, "kernels") / count)

    return _case("queue", count, {"device": place_name(setup.device)}, [tiny], build)


def _ping_pong(setup: Setup, count: int, devices: tuple[int, int]) -> Case:
    """Tiny kernels on two queues in turn, each after the one before; a sample is the time per hop."""
    tinies = [_tiny(device) for device in devices]
    lanes = [compute_lane(device, index) for index, device in enumerate(devices)]

    def build(bench: Bench) -> Built:
        launches = [tiny.launches(bench, 0, 1)[0] for tiny in tinies]
        steps = [
            Step(
                id=f"hop{i}",
                lane=lanes[i % 2],
                launch=launches[i % 2],
                waits=(f"hop{i - 1}",) if i else (),
            )
            for i in range(count)
        ]
        # no events around the steps: they would take as long as what is measured
        prepared = bench.prepare(steps, spans=False)
        return Built(prepared=prepared, sample=lambda run: run.makespan_s / count)

    params: dict[str, Scalar] = {
        "device": place_name(setup.device),
        "between": ">".join(map(place_name, devices)),
    }
    return _case("wait", count, params, tinies, build)


def _after_copies(setup: Setup, count: int, direction: str) -> Case:
    """A tiny kernel after a tiny copy, the next copy after that kernel; a sample is one such pair."""
    tiny, copy = _tiny(setup.device), tiny_copy(direction)
    (flow,) = copy.flows

    def build(bench: Bench) -> Built:
        kernel: Launch = tiny.launches(bench, 0, 1)[0]
        transfer: Launch = copy.launches(bench, 0, 1)[0]
        steps = []
        for i in range(count):
            before = (f"kernel{i - 1}",) if i else ()
            steps += [
                Step(id=f"copy{i}", lane=flow_lane(flow, 0), launch=transfer, waits=before),
                Step(
                    id=f"kernel{i}",
                    lane=compute_lane(setup.device),
                    launch=kernel,
                    waits=(f"copy{i}",),
                ),
            ]
        prepared = bench.prepare(steps, spans=False)
        return Built(prepared=prepared, sample=lambda run: run.makespan_s / count)

    params: dict[str, Scalar] = {"device": place_name(setup.device), "direction": direction}
    return _case("wait_for_copy", count, params, [tiny, copy], build)


def _empty_copies(direction: str, count: int) -> Case:
    """Copies of hardly any bytes on one queue; a sample is the time per copy."""
    copy = tiny_copy(direction)
    (flow,) = copy.flows

    def build(bench: Bench) -> Built:
        launch = in_turn(copy.launches(bench, 0, count))
        steps = [Step(id="copies", lane=flow_lane(flow, 0), launch=launch)]
        return Built(prepared=bench.prepare(steps), sample=lambda run: span_s(run, "copies") / count)

    return _case("empty_copy", count, {"direction": direction}, [copy], build, copy.labels)


def _submission(setup: Setup, *, graph: bool) -> Case:
    """A plan as one graph, or submitted step by step; its series has the host's time per step."""
    plan = chain_plan(setup)
    placement = Placement(
        places=(setup.device, *[HOST] * (plan.num_gpus - 1)), computing=frozenset({0})
    )
    count = sum(task.queue.gpu == 0 for task in plan.tasks)

    def build(bench: Bench) -> Built:
        bound = bind(plan, placement, bench.backend)
        bound.memory.load(random_inputs(plan, placement, setup.seed, init=setup.init))

        def per_step(run: Run) -> dict[str, float]:
            return {"host_submit_s": run.host_s, "host_per_step_s": run.host_s / count}

        return Built(prepared=bench.prepare(bound.steps, graph=graph, spans=False), series=per_step)

    workload = plan.workload
    return Case(
        kind="launch",
        params={
            "what": "submission",
            "mode": "graph" if graph else "eager",
            "count": count,
            "schedule": plan.schedule,
            "m": workload.m,
            "n": workload.n,
            "k": workload.k,
            "dtype": workload.dtype,
            "num_gpus": plan.num_gpus,
            "num_chunks": plan.knobs["num_chunks"],
            "init": setup.init,
            "device": place_name(setup.device),
        },
        build=build,
        estimate_s=count * (GUESSED_KERNEL_S if graph else GUESSED_EAGER_STEP_S),
    )
