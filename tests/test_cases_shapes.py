"""Layer: workload, costs and simulator. Shapes that public reports found mishandled."""

import dataclasses

import pytest

from ficco_sim.cli import main
from ficco_sim.comparison import compare
from ficco_sim.costs import CostModel
from ficco_sim.machine import load_machine
from ficco_sim.plan import Gemm
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Operator, Shape, Workload, aligned, remarks, skewed, split


@pytest.fixture(scope="module")
def mesh():
    return load_machine("mi300x_8")


def gathered(m: int, n: int, k: int, dtype: str = "bf16") -> Workload:
    return Workload(name="w", pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)


class TestStrongScaling:
    """Compute time stayed the same when the number of gpus changed."""

    @pytest.mark.parametrize(
        ("tp", "flops", "received"),
        [(8, 481_036_337_152, 117_440_512), (16, 240_518_168_576, 125_829_120)],
    )
    def test_flops_follow_the_degree(self, tp, flops, received):
        whole = Shape(m=8192, n=28672, k=8192)
        workload = Operator(name="up", whole=whole, tp=tp).workload()
        assert workload.flops == flops
        assert workload.gathered_bytes * (tp - 1) // tp == received

    def test_expert_parallel_tokens_follow_the_degree(self):
        workload = Operator(name="moe", whole=Shape(m=100, n=8, k=8), ep=8, top_k=2).workload()
        assert len(workload.tokens) == 8
        assert all(sum(row) == 200 for row in workload.tokens)
        assert workload.imbalance == 1


class TestRowsThatDoNotDivide:
    """Integer division dropped rows."""

    def test_every_row_is_kept(self):
        sizes = [b - a for a, b in split(4099, 8)]
        assert sizes == [513] * 3 + [512] * 5
        assert [b - a for a, b in split(513, 4)] == [129, 128, 128, 128]

    @pytest.mark.parametrize("schedule", ["serial", "shard-p2p", *FICCO])
    def test_the_gemms_cover_every_row(self, schedule):
        plan = make_plan(schedule, gathered(4099, 64, 64), 8)
        for g in range(8):
            gemms = [t for t in plan.tasks if isinstance(t, Gemm) and t.queue.gpu == g]
            assert sum(t.flops for t in gemms) == 2 * 4099 * 64 * 64

    def test_the_largest_shard_sets_the_time(self, mesh):
        costs = CostModel(mesh, "ideal")
        one_more = simulate(make_plan("serial", gathered(4097, 64, 8192), 8), mesh, costs)
        even = simulate(make_plan("serial", gathered(4096, 64, 8192), 8), mesh, costs)
        extra_s = 8192 * 2 / 46.5e9
        gemm_s = costs.whole_gemm(gathered(4097, 64, 8192)).time_s
        gemm_s -= costs.whole_gemm(gathered(4096, 64, 8192)).time_s
        assert one_more.makespan_s - even.makespan_s == pytest.approx(extra_s + gemm_s, rel=1e-6)


class TestAlignment:
    """fp8 needs n and k in multiples of 16, after sharding too."""

    @pytest.mark.parametrize(
        ("n", "k", "name", "size", "padded"),
        [(4096, 4100, "k", 4100, 4112), (4096, 130, "k", 130, 144), (2, 768, "n", 2, 16)],
    )
    def test_padding_is_counted_and_said(self, mesh, n, k, name, size, padded):
        workload = gathered(512, n, k, "fp8")
        (said,) = remarks(workload, 8, 8)
        assert said.startswith(f"{name} = {size} is padded to {padded}: fp8")
        assert f"x {padded / size:.4f}" in said
        costs = CostModel(mesh)
        full = gathered(512, aligned(n, "fp8"), aligned(k, "fp8"), "fp8")
        assert costs.whole_gemm(workload).time_s == costs.whole_gemm(full).time_s
        assert remarks(full, 8, 8) == []
        assert remarks(gathered(512, n, k, "bf16"), 8, 8) == []

    def test_the_command_says_it(self, capsys):
        assert (
            main(["compare", "--machine", "h200_2", "--gemm", "512,4096,4100", "--dtype", "fp8"]) == 0
        )
        assert "k = 4100 is padded to 4112" in capsys.readouterr().out


class TestSkewedExperts:
    """A uniform average hid that one gpu had all the work."""

    @pytest.mark.parametrize(
        ("received", "imbalance"),
        [([8, 0] * 8, 2.0), ([4] * 16, 1.0), ([49] + [1] * 15, 12.25)],
    )
    def test_imbalance_is_largest_over_mean(self, received, imbalance):
        rows = (tuple(received), *[(0,) * 16] * 15)
        workload = Workload(name="w", pattern="all_to_all_gemm", m=max(received), n=1, k=1, tokens=rows)
        assert sum(map(sum, workload.tokens)) == 64
        assert workload.imbalance == imbalance

    def test_time_follows_the_busiest_gpu(self, mesh):
        times = []
        for received in ([16000, 0] * 4, [8000] * 8, [57000] + [1000] * 7):
            rows = tuple(tuple(r // 8 for r in received) for _ in range(8))
            workload = Workload(
                name="w", pattern="all_to_all_gemm", m=max(received), n=4096, k=7168, tokens=rows
            )
            plan = make_plan("serial", workload, 8)
            trace = simulate(plan, mesh, CostModel(mesh))
            times.append(max(s.duration_s for s in trace.spans if s.kind == "gemm"))
        assert times[0] / times[1] == pytest.approx(2, rel=0.05)
        assert times[2] / times[1] == pytest.approx(57 / 8, rel=0.05)

    @pytest.mark.parametrize("skew", [0.3, 1.0, 4.0])
    def test_skew_moves_tokens_and_loses_none(self, skew):
        even = Operator(name="moe", whole=Shape(m=1000, n=8, k=8), ep=8, top_k=2).workload()
        tilted = skewed(even, skew)
        assert [sum(row) for row in tilted.tokens] == [sum(row) for row in even.tokens]
        columns = [sum(column) for column in zip(*tilted.tokens, strict=True)]
        assert columns == sorted(columns, reverse=True)
        assert tilted.imbalance > even.imbalance
        share = 1 / sum((g + 1) ** -skew for g in range(8))
        assert columns[0] / sum(columns) == pytest.approx(share, abs=1e-3)


class TestHugeShapes:
    """More than 2**31 elements wrapped."""

    def test_no_number_wraps(self, mesh):
        workload = gathered(699_904, 3584, 8192)
        assert workload.gathered_bytes == 11_467_227_136
        assert workload.flops == 41_098_542_055_424
        assert workload.m // 8 == 87_488
        assert workload.gathered_bytes // 8 == 1_433_403_392
        costs = CostModel(mesh)
        assert costs.whole_gemm(workload).time_s == pytest.approx(workload.flops / 600e12, rel=0.15)
        trace = simulate(make_plan("serial", workload, 8), mesh, costs)
        moved = sum(s.nbytes for s in trace.spans if s.kind == "transfer")
        assert moved == 7 * workload.gathered_bytes


class TestDecode:
    """One row cannot be cut, and reading the weights sets its time."""

    def test_weights_set_the_time(self, mesh):
        workload = gathered(1, 28672, 8192)
        assert workload.k * workload.n * 2 == 469_762_048
        floor_s = 469_762_048 / mesh.gpu.hbm_bytes_per_s
        assert floor_s == pytest.approx(88.6e-6, rel=1e-3)
        time_s = CostModel(mesh).whole_gemm(workload).time_s
        assert time_s >= floor_s
        # public rows of this kind stream at 3.4 to 3.6 TB/s
        assert time_s == pytest.approx(469_762_048 / 3.5e12, rel=0.12)

    def test_empty_chunks_are_said_and_make_no_task(self, mesh):
        workload = gathered(1, 28672, 8192)
        for schedule in FICCO:
            plan = make_plan(schedule, workload, 8)
            assert all(rows > 0 for t in plan.tasks if isinstance(t, Gemm) for rows in t.entry_rows)
        result = compare(workload, mesh)
        assert any("1 rows cannot be cut into 64 chunks" in r for r in result.remarks)
        assert result.verdict.startswith("Overlap does not pay here")
        best = min(r.makespan_s for r in result.results)
        assert best >= 88.6e-6
        assert dataclasses.asdict(result.results[0])["speedup"] < 1.01
