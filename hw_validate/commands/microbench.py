"""The verb microbench: what GEMMs, copies, contention and launching cost on this machine."""

from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.command import JsonOption, console, write_json
from ficco_sim.errors import ScenarioError
from hw_validate.commands.measuring import Measuring, numbers, plain, words


def microbench(
    *,
    sets: Annotated[
        str, Parameter(help="launch, copy, core, local, contention, gemms, gemm with commas, or all.")
    ] = "all",
    workload: Annotated[
        list[str] | None,
        Parameter(help="Workloads whose GEMMs and pieces are timed; names or files, may be repeated."),
    ] = None,
    gemm: Annotated[
        list[str] | None, Parameter(help="Shapes M,N,K instead, or beside them; may be repeated.")
    ] = None,
    dtype: Annotated[str, Parameter(help="Element types of GEMMs, with commas.")] = "bf16",
    num_gpus: Annotated[int, Parameter(help="Gpus of the plans that cut GEMMs into pieces.")] = 8,
    num_chunks: Annotated[str, Parameter(help="Numbers with commas.")] = "2,4,8",
    devices: Annotated[int, Parameter(help="Devices to use.")] = 1,
    init: Annotated[
        Literal["randn", "zeros"],
        Parameter(help="zeros only to see what they do: they run faster than real data."),
    ] = "randn",
    measuring: Annotated[Measuring, Parameter(name="*")] = Measuring(),  # noqa: B008 - frozen
    json: JsonOption = None,
) -> None:
    """Time single GEMMs, copies, contention and launching, into a file of records to calibrate from."""
    from hw_validate.environment import require_torch

    measuring.check()
    require_torch()
    from ficco_sim.workload import DTYPE_BYTES, workload_from_options
    from hw_validate.microbench import SETS, Setup, suite
    from hw_validate.peaks import Peaks, peaks_of

    if not 1 <= devices <= 64:
        raise ScenarioError(f"--devices: {devices} must be from 1 to 64")
    dtypes = words("--dtype", dtype, tuple(DTYPE_BYTES))
    workloads = [workload_from_options(name, None, dtypes[0]) for name in workload or ()]
    workloads += [workload_from_options(None, shape, dtypes[0]) for shape in gemm or ()]
    used = tuple(range(devices))
    peaks = Peaks()
    backend = None
    if not measuring.dry_run:
        backend = measuring.backend(used)
        if backend.kind == "gpu":
            import torch

            peaks = peaks_of(torch.cuda.get_device_name(0))
    groups = suite(
        words("--sets", sets, SETS),
        Setup(
            workloads=tuple({w.name: w for w in workloads}.values()),
            num_gpus=num_gpus,
            num_chunks=numbers("--num-chunks", num_chunks, 4096),
            devices=used,
            dtypes=dtypes,
            init=init,
            peaks=peaks,
            seed=measuring.seed,
        ),
    )
    if backend is None:
        from hw_validate.dry_run import start_s

        measuring.say_plan(groups, command="microbench", start_s=start_s(devices), json=json)
        return
    measurements = measuring.measure(groups, backend, used, init, json)
    if not write_json({"measurements": plain(measurements)}, json):
        counts: dict[str, int] = {}
        for m in measurements:
            counts[m.kind] = counts.get(m.kind, 0) + m.usable
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        console().print(f"usable: {kinds}", highlight=False)
