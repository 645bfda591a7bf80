"""Verbs about plans: plan and check."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.cli.options import EngineOption, GatherOption
from ficco_sim.cli.support import check_outputs, find_plan, knobs_given
from ficco_sim.command import (
    DtypeOption,
    GemmOption,
    JsonOption,
    WorkloadOption,
    console,
    say,
    write_json,
    write_text_to,
)
from ficco_sim.errors import ScenarioError


def plan(
    schedule: Annotated[
        str,
        Parameter(
            help="Name of a schedule (see: ficco list schedules), or FILE.py:FUNCTION, which is run as "
            "code."
        ),
    ],
    *,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    num_gpus: int = 8,
    num_chunks: int | None = None,
    compute_queues: int | None = None,
    copy_queues: int | None = None,
    engine: EngineOption | None = None,
    gather: GatherOption | None = None,
    gpu: Annotated[int, Parameter(help="Whose queues to print.")] = 0,
    json: JsonOption = None,
    chakra: Annotated[
        Path | None,
        Parameter(help="Write Chakra execution traces into a new folder, one a gpu, for ASTRA-sim."),
    ] = None,
) -> None:
    """Make a plan; print the queues of one gpu, or write it as JSON for simulate and check."""
    check_outputs(json, None, None)
    knobs = knobs_given(num_chunks, compute_queues, copy_queues, engine, gather)
    made = find_plan(schedule, None, workload, gemm, dtype, num_gpus, knobs)
    if not 0 <= gpu < num_gpus:
        raise ScenarioError(f"gpu: {gpu} must be from 0 to {num_gpus - 1}")
    written = []
    if chakra is not None:
        from ficco_sim.interchange import write_chakra

        files = write_chakra(chakra, made)
        written.append(f"{files[0]} to {files[-1].name}")
    if json is not None:
        write_text_to(made.to_json(), json)
        if json == "-":
            return
        written.append(json)
    out = console()
    out.print(
        f"{made.schedule} of {made.workload.name}: {len(made.tasks)} tasks on {num_gpus} gpus; "
        f"gpu {gpu}:",
        highlight=False,
    )
    queues: dict[str, list[str]] = {}
    for task in made.tasks:
        if task.queue.gpu == gpu:
            queues.setdefault(f"{task.queue.engine} {task.queue.index}", []).append(task.id)
    for name, ids in sorted(queues.items()):
        shown = ids if len(ids) <= 10 else [*ids[:8], f"... {len(ids) - 9} more ...", ids[-1]]
        out.print(f"  {name:10} {' -> '.join(shown)}", highlight=False)
    say(out, [f"wrote {name}" for name in written])


def schema(
    name: Annotated[
        Literal["plan", "trace", "machine", "gpu", "workload", "records"],
        Parameter(help="Kind of file."),
    ],
    *,
    json: JsonOption = "-",
) -> None:
    """Print the JSON schema (draft 2020-12) of a kind of file."""
    from ficco_sim.interchange import schema_text

    write_text_to(schema_text(name), json or "-")


def check(
    file: Annotated[Path, Parameter(help="A plan file, from: ficco plan --json FILE.")],
    *,
    evaluate: Annotated[
        bool, Parameter(help="Run it in numpy as well, in three random legal orders (small plans).")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Prove that a plan is legal and computes its workload, without running it."""
    from ficco_sim import reference
    from ficco_sim.check import check_plan
    from ficco_sim.plan import load_plan

    loaded = load_plan(file)
    check_plan(loaded)
    orders = 0
    if evaluate:
        inputs = reference.make_inputs(loaded, integers=True)
        for seed in range(3):
            outputs = reference.evaluate(loaded, inputs, reference.legal_order(loaded, seed))
            reference.assert_correct(loaded, outputs, inputs, rtol=0.0)
            orders += 1
    row = {
        "schedule": loaded.schedule,
        "workload": loaded.workload.name,
        "num_gpus": loaded.num_gpus,
        "num_tasks": len(loaded.tasks),
        "fingerprint": loaded.fingerprint,
        "evaluated_orders": orders,
    }
    if not write_json(row, json):
        numbers = f", numbers exact in {orders} orders" if orders else ""
        console().print(
            f"{file}: {loaded.schedule}, {len(loaded.tasks)} tasks on {loaded.num_gpus} gpus: legal "
            f"and complete{numbers}; fingerprint {loaded.fingerprint[:16]}",
            highlight=False,
        )
