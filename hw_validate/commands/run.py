"""The verb run: plans of every schedule, verified and timed against each other."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ficco_sim.command import (
    DtypeOption,
    JsonOption,
    Progress,
    byte_count,
    console,
    say,
    write_json,
)
from ficco_sim.errors import ScenarioError
from hw_validate.commands.measuring import Measuring, numbers, plain, words

if TYPE_CHECKING:
    from ficco_sim.workload import Workload


def run(
    *,
    workload: Annotated[
        list[str] | None,
        Parameter(help="Names of workloads (see: ficco list workloads) or files; may be repeated."),
    ] = None,
    gemm: Annotated[
        list[str] | None, Parameter(help="Shapes M,N,K instead, or beside them; may be repeated.")
    ] = None,
    dtype: DtypeOption = "bf16",
    num_gpus: Annotated[int, Parameter(help="Gpus of the plans, however many devices there are.")] = 8,
    map: Annotated[  # noqa: A002 - the name of the option
        list[str] | None,
        Parameter(
            help="Where they live: own, switch, mesh, host, self, together or core-mesh, or a text "
            "such as 0=dev0,1-7=host; may be repeated. Default: own."
        ),
    ] = None,
    schedule: Annotated[str, Parameter(help="Names with commas, or all.")] = "all",
    num_chunks: Annotated[str, Parameter(help="Numbers with commas.")] = "2,4,8",
    compute_queues: Annotated[
        str, Parameter(help="Numbers with commas; for unfused schedules.")
    ] = "1,4",
    copy_queues: Annotated[
        str,
        Parameter(
            help="Numbers with commas, or peer for a queue a peer; for FiCCO schedules. With 1, chunks "
            "arrive in the order of steps on any hardware."
        ),
    ] = "peer",
    engine: Annotated[str, Parameter(help="dma, core or both with a comma.")] = "dma",
    core_blocks: Annotated[int, Parameter(help="Blocks of core-driven copies on a gpu in all.")] = 16,
    submission: Annotated[str, Parameter(help="graph, eager or both with a comma.")] = "graph",
    straight: Annotated[
        bool,
        Parameter(help="Also versions written straight in torch, without a plan.", negative=()),
    ] = False,
    tensor_copies: Annotated[
        bool,
        Parameter(help="Also such versions that copy by Tensor.copy_.", negative=()),
    ] = False,
    collectives: Annotated[
        bool,
        Parameter(
            help="Also what a user has without plans: NCCL's all-gather and GEMMs, one after the other "
            "and on two streams. Needs a device a gpu.",
            negative=(),
        ),
    ] = False,
    rehearse: Annotated[
        bool,
        Parameter(
            help="With --dry-run: also check every plan, run it on CPU tensors at a small shape with "
            "the same tasks, verify its numbers, and count the memory that it needs.",
            negative=(),
        ),
    ] = False,
    memory: Annotated[
        str | None, Parameter(help="With --rehearse: memory of a device, such as 139GiB.")
    ] = None,
    spans: Annotated[bool, Parameter(help="Also an instrumented run, for the spans of tasks.")] = True,
    measuring: Annotated[Measuring, Parameter(name="*")] = Measuring(),  # noqa: B008 - frozen
    json: JsonOption = None,
) -> None:
    """Run plans on gpus: verify each, then time all of a workload interleaved, into a file of records.

    Every plan is captured in graphs, its result compared with a product in higher precision, and timed
    in random order against the others of its workload.
    """
    measuring.check()
    workloads = _workloads(workload, gemm, dtype)
    from hw_validate.environment import require_torch

    require_torch()
    from hw_validate.maps import find_map
    from hw_validate.peaks import peaks_of
    from hw_validate.plan_runs import COMPARED, PlanSettings, num_examined, plan_groups
    from hw_validate.summary import (
        TABLE_WIDTH,
        collective_lines,
        collective_rows,
        plan_rows,
        plan_table,
    )

    if not 1 <= core_blocks <= 4096:
        raise ScenarioError(f"--core-blocks: {core_blocks} must be from 1 to 4,096")
    if not 1 <= num_gpus <= 64:
        raise ScenarioError(f"--num-gpus: {num_gpus} must be from 1 to 64")
    if rehearse and not measuring.dry_run:
        raise ScenarioError("--rehearse: only with --dry-run")
    if memory is not None and not rehearse:
        raise ScenarioError("--memory: only with --rehearse")
    maps = [find_map(name, num_gpus) for name in dict.fromkeys(map or ["own"])]
    settings = PlanSettings(
        num_gpus=num_gpus,
        schedules=words("--schedule", schedule, COMPARED),
        num_chunks=numbers("--num-chunks", num_chunks, 4096),
        compute_queues=numbers("--compute-queues", compute_queues, 64),
        copy_queues=tuple(
            dict.fromkeys(
                0 if word.strip() == "peer" else numbers("--copy-queues", word, 64)[0]
                for word in copy_queues.split(",")
            )
        ),
        engines=words("--engine", engine, ("dma", "core")),
        submissions=words("--submission", submission, ("graph", "eager")),
        core_blocks=core_blocks,
        spans=spans,
        straight=straight,
        tensor_copies=tensor_copies,
        collectives=collectives,
        seed=measuring.seed,
        estimate_rounds=measuring.rounds + 7,
    )
    devices = sorted(
        {
            d
            for where in maps
            for name in settings.schedules
            for d in where.placement(name, num_gpus).devices
        }
    )
    computing = sorted(
        {
            placement.places[gpu]
            for where in maps
            for name in settings.schedules
            for placement in (where.placement(name, num_gpus),)
            for gpu in placement.computing
        }
    )
    peaks: dict[str, float] = {}
    groups = plan_groups(workloads, maps, settings, peak_flops_per_s=peaks.get)
    if measuring.dry_run:
        from hw_validate.dry_run import examine_s, start_s
        from hw_validate.rehearsal import rehearse as rehearsed

        tried = None
        if rehearse:
            with Progress("rehearsing") as progress:
                tried = rehearsed(
                    workloads,
                    maps,
                    settings,
                    memory_bytes=None if memory is None else byte_count("--memory", memory),
                    progress=progress,
                )
        first_s = start_s(len(devices)) + examine_s(num_examined(maps, settings))
        measuring.say_plan(groups, command="run", start_s=first_s, json=json, rehearsal=tried)
        if tried is not None and tried.failures:
            raise ScenarioError(f"{len(tried.failures)} failures: {tried.failures[0]}")
        return
    backend = measuring.backend(devices, core_blocks)
    if backend.kind == "gpu":
        import torch

        peaks |= peaks_of(torch.cuda.get_device_name(devices[0])).flops_per_s
    measurements = measuring.measure(groups, backend, devices, "randn", json, computing=computing)
    if write_json({"measurements": plain(measurements)}, json):
        return
    rows = plan_rows(measurements)
    if rows:
        console(TABLE_WIDTH).print(plan_table(rows))
        say(console(TABLE_WIDTH), collective_lines(collective_rows(measurements)))
    else:
        say(console(), ["no usable serial plan to compare with: leave serial in --schedule"])


def _workloads(names: list[str] | None, shapes: list[str] | None, dtype: str) -> "list[Workload]":
    from ficco_sim.workload import workload_from_options

    found = [workload_from_options(name, None, dtype) for name in names or ()]
    found += [workload_from_options(None, shape, dtype) for shape in shapes or ()]
    if not found:
        raise ScenarioError("give one of --workload and --gemm, or several")
    by_name = {workload.name: workload for workload in found}
    for workload in found:
        if workload != by_name[workload.name]:
            raise ScenarioError(f"--workload: two different ones have the name {workload.name!r}")
    return list(by_name.values())
