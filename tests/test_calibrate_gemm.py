"""Layer: library. Fits of GEMM rates and the table of measured shapes: synthetic truth, public data."""

import csv
import functools
import math
import tempfile
from dataclasses import astuple, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ficco_sim.calibrate import gemm, read_inputs, read_start
from ficco_sim.calibrate.gemm import GemmSample, fit_gemm, large, measured_table
from ficco_sim.calibrate.robust import NotFitted, held_out_predictions
from ficco_sim.costs.gemm import GemmModel, GemmShape, TileGrid
from ficco_sim.errors import FileError
from ficco_sim.gemm_table import read_gemm_table, write_gemm_table
from ficco_sim.profile import GemmRates, MeasuredGemm

RUNS = Path(__file__).parents[1] / "hw_validate" / "runs"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NOISE = 0.015
OUTLIERS = 0.1

START = read_start("h200_8").gpu
GPU = START.gpu
TRUTH = GemmRates(
    startup_s=4e-6,
    flops_per_s_per_unit=6.5e12,
    edge_elements=25.0,
    feed_bytes_per_s=16e12,
    wave_s=0.5e-6,
    wave_rounding=0.4,
    input_bytes_per_s=3.6e12,
    output_bytes_per_s=3.0e12,
    stream_overlap=0.4,
    split_s=3e-6,
)
OFF = (1.3, 0.85, 0.9, 1.15, 1.2, 0.8, 0.9, 1.1, 1.2, 0.7)
NEAR = GemmRates(
    **{f.name: getattr(TRUTH, f.name) * x for f, x in zip(fields(TRUTH)[: len(OFF)], OFF, strict=True)}
)


def profile_of(rates, dtype="bf16", measured=(), reach=0.0):
    return replace(START.profile.gemm, rates={dtype: rates}, measured=measured, correction_reach=reach)


def model_of(rates, dtype="bf16", measured=(), reach=0.0):
    profile = profile_of(rates, dtype, measured, reach)
    return GemmModel(profile, GPU.num_compute_units, GPU.name)


def true_s(sample):
    return model_of(TRUTH, sample.dtype).cost(sample.shape).time_s


def shapes(rng, count, dtype="bf16", entries=1):
    """Shapes from skinny to large, with times of the truth."""
    drawn = [
        GemmSample(
            m=entries * int(2 ** rng.uniform(4, 15)),
            n=int(2 ** rng.uniform(6, 14)),
            k=int(2 ** rng.uniform(6, 14)),
            dtype=dtype,
            time_s=1.0,
            entries=entries,
        )
        for _ in range(count)
    ]
    return [replace(sample, time_s=true_s(sample)) for sample in drawn]


def measured(seed, count, outliers=OUTLIERS):
    """Noisy times, the shapes with a bad kernel, and other shapes with their true times."""
    rng = np.random.default_rng(seed)
    noisy, bad = [], set()
    for sample in shapes(rng, count):
        time_s = sample.time_s * math.exp(rng.normal(0, NOISE))
        if rng.random() < outliers:
            bad.add(sample.shape)
            time_s *= 2
        noisy.append(replace(sample, time_s=time_s))
    return noisy, bad, shapes(rng, 80)


def errors(rates, samples):
    model = model_of(rates, samples[0].dtype)
    return np.array([abs(model.cost(s.shape).time_s / s.time_s - 1) for s in samples])


# synthetic truth


@pytest.mark.parametrize("seed", range(4))
def test_predictions_come_back_within_the_noise_and_bad_kernels_are_told(seed):
    noisy, bad, others = measured(seed, 150)
    found = fit_gemm(noisy, profile_of(NEAR), GPU, held_out=False)
    off = errors(found.rates, others)
    assert off.mean() < NOISE
    assert np.quantile(off, 0.9) < 2 * NOISE
    assert {kernel.sample.shape for kernel in found.bad_kernels} == bad
    ratios = [kernel.ratio for kernel in found.bad_kernels]
    assert ratios == sorted(ratios, reverse=True)
    assert all(ratio == pytest.approx(2, rel=0.1) for ratio in ratios)
    assert found.fit.num_points == 150


def test_bad_kernels_do_not_spoil_the_fit():
    noisy, bad, others = measured(0, 150)
    healthy = [replace(s, time_s=s.time_s / 2) if s.shape in bad else s for s in noisy]
    with_bad = fit_gemm(noisy, profile_of(NEAR), GPU, held_out=False)
    without = fit_gemm(healthy, profile_of(NEAR), GPU, held_out=False)
    assert without.bad_kernels == ()
    model, other = model_of(with_bad.rates), model_of(without.rates)
    ratios = [model.cost(s.shape).time_s / other.cost(s.shape).time_s for s in others]
    assert max(abs(ratio - 1) for ratio in ratios) < 2 * NOISE
    assert abs(np.mean(ratios) - 1) < NOISE / 2


def test_parameters_come_back_within_their_intervals_at_the_stated_rate():
    """Of 90 % intervals over 20 fits of 10 parameters, which start up to 30 % off."""
    inside = []
    for seed in range(20):
        noisy, _, _ = measured(seed, 150)
        found = fit_gemm(noisy, profile_of(NEAR), GPU, held_out=False)
        assert set(found.fit.samples) == {f.name for f in fields(GemmRates)} - {"clock_exponent"}
        for name, drawn in found.fit.samples.items():
            least, most = np.quantile(drawn, (0.05, 0.95))
            inside.append(least <= getattr(TRUTH, name) <= most)
    assert 0.78 <= np.mean(inside) <= 0.98


def test_held_out_errors_are_those_of_shapes_that_were_left_out():
    noisy, _, _ = measured(5, 120, outliers=0.0)
    found = fit_gemm(noisy, profile_of(NEAR), GPU)
    assert found.fit.held_out
    # of a normal distribution the mean of absolute values is 0.8 deviations
    assert 0.7 * NOISE < found.fit.mean_error < 1.5 * NOISE
    assert found.fit.median_error < found.fit.mean_error < found.fit.p90_error
    assert found.large_errors.count == 3 * sum(large(s) for s in noisy)
    inside = fit_gemm(noisy, profile_of(NEAR), GPU, held_out=False)
    assert not inside.fit.held_out
    assert inside.fit.mean_error < found.fit.mean_error
    for name in ("m", "n", "k"):
        sizes = [getattr(s, name) for s in noisy]
        assert found.fit.valid[name] == (min(sizes), max(sizes))


def test_time_of_the_host_in_every_row_comes_back_as_start_up():
    """Timed from Python without a queue of work, each row holds some 25 to 30 us of the host's."""
    slow = [replace(s, time_s=s.time_s + 26e-6) for s in shapes(np.random.default_rng(6), 60)]
    found = fit_gemm(slow, profile_of(NEAR), GPU, held_out=False)
    assert found.rates.startup_s == pytest.approx(30e-6, rel=0.02)
    assert errors(found.rates, slow).max() < 0.02


def test_what_few_points_do_not_tell_stays_where_it_was():
    """Tiny GEMMs tell the start-up; rates of large ones keep their start."""
    rng = np.random.default_rng(0)
    for count in (8, 15):
        tiny = [
            GemmSample(m=int(rng.integers(8, 64)), n=64, k=64 + 32 * i, dtype="bf16", time_s=1.0)
            for i in range(count)
        ]
        tiny = [replace(s, time_s=true_s(s)) for s in tiny]
        start = replace(NEAR, startup_s=6e-6)
        found = fit_gemm(tiny, profile_of(start), GPU, held_out=False)
        assert errors(found.rates, tiny).mean() < 0.01
        for name in ("flops_per_s_per_unit", "output_bytes_per_s"):  # the feed bounds small tiles
            assert getattr(found.rates, name) == pytest.approx(getattr(start, name), rel=0.05)
        big = GemmShape((8192,), 8192, 8192, "bf16")
        before, after = model_of(start).cost(big).time_s, model_of(found.rates).cost(big).time_s
        assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_shapes_give_a_reason(count):
    samples = shapes(np.random.default_rng(0), count) * 3  # repetitions are no further shapes
    found = fit_gemm(samples, profile_of(NEAR), GPU)
    assert found == NotFitted(reason=f"{count} shapes; 8 are needed")


def test_repeated_shapes_count_once_with_their_median():
    once = shapes(np.random.default_rng(1), 20)
    repeated = [replace(s, time_s=s.time_s * factor) for s in once for factor in (0.99, 1.0, 5.0)]
    found = fit_gemm(repeated, profile_of(NEAR), GPU, held_out=False)
    assert found == fit_gemm(once, profile_of(NEAR), GPU, held_out=False)
    assert found.fit.num_points == 20
    assert measured_table(repeated) == measured_table(once)
    assert [g.time_s for g in measured_table(repeated)] == [s.time_s for s in once]


def test_batched_and_accumulating_shapes_are_points_of_their_own():
    rng = np.random.default_rng(2)
    mixed = [*shapes(rng, 40), *shapes(rng, 20, entries=8)]
    mixed += [replace(s, accumulate=True, time_s=1.0) for s in mixed]
    mixed = [replace(s, time_s=true_s(s)) for s in mixed]
    found = fit_gemm(mixed, profile_of(NEAR), GPU, held_out=False)
    assert found.fit.num_points == 120
    assert errors(found.rates, mixed).max() < 0.02
    batched = mixed[50]
    assert (len(batched.shape.entry_rows), batched.shape.m) == (8, batched.m)
    rows = {(g.m, g.n, g.k, g.entries, g.accumulate) for g in measured_table(mixed)}
    assert len(rows) == 120
    # reading C as well takes longer, and it is not the same shape
    assert all(a.time_s > b.time_s for a, b in zip(mixed[60:], mixed[:60], strict=True))


def test_fp8_is_fitted_as_padded():
    """Matrix units take n and k in multiples of 16: 100 columns take as long as 112."""
    odd = GemmSample(m=4096, n=1000, k=5000, dtype="fp8", time_s=1.0)
    padded = replace(odd, n=1008, k=5008)
    assert true_s(odd) == true_s(padded)
    wide = replace(odd, dtype="bf16")
    assert true_s(wide) < true_s(replace(wide, n=1008, k=5008))
    samples = shapes(np.random.default_rng(3), 60, "fp8")
    assert any(s.n % 16 and s.k % 16 for s in samples)
    found = fit_gemm(samples, profile_of(NEAR, "fp8"), GPU, held_out=False)
    assert errors(found.rates, samples).max() < 0.02
    assert {(g.n, g.k) for g in measured_table(samples)} == {(s.n, s.k) for s in samples}


def test_a_type_without_rates_starts_from_those_of_another():
    samples = shapes(np.random.default_rng(4), 80, "fp8")
    found = fit_gemm(samples, profile_of(NEAR, "bf16"), GPU, held_out=False)
    assert errors(found.rates, samples).mean() < 0.01


# measured shapes


def measured_gemm(m, n, k, factor=1.0, **more):
    row = MeasuredGemm(m=m, n=n, k=k, dtype="bf16", time_s=1e-3, **more)
    shape = GemmShape((m // row.entries,) * row.entries, n, k, "bf16", row.accumulate)
    return replace(row, time_s=factor * model_of(TRUTH).formula(shape).time_s)


def ratio(model, m, n, k):
    shape = GemmShape((m,), n, k, "bf16")
    return model.cost(shape).time_s / model.formula(shape).time_s


def grid_of(factor, sizes=(512, 1024, 2048, 4096)):
    return tuple(measured_gemm(m, n, k, factor) for m in sizes for n in sizes for k in sizes)


@pytest.mark.parametrize("reach", [0.0, 2.0])
@pytest.mark.parametrize("factor", [0.8, 1.2, 1.8])
def test_exact_shapes_win(reach, factor):
    rows = (
        measured_gemm(1024, 2048, 4096, factor),
        measured_gemm(1024, 2048, 4096, factor * 1.1, accumulate=True),
        measured_gemm(1024, 2048, 4096, factor * 1.2, entries=4),
    )
    model = model_of(TRUTH, measured=rows, reach=reach)
    assert model.cost(GemmShape((1024,), 2048, 4096, "bf16")).time_s == pytest.approx(rows[0].time_s)
    adding = GemmShape((1024,), 2048, 4096, "bf16", accumulate=True)
    assert model.cost(adding).time_s == pytest.approx(rows[1].time_s)
    batch = GemmShape((256,) * 4, 2048, 4096, "bf16")
    assert model.cost(batch).time_s == pytest.approx(rows[2].time_s)
    # on fewer units slower, as the formula is
    half, whole = model.cost(batch, 66), model.cost(batch)
    of_formula = model.formula(batch, 66).body_s / model.formula(batch).body_s
    assert half.body_s / whole.body_s == pytest.approx(of_formula)


def test_neighbours_are_corrected_and_others_less_the_further_they_are():
    near = measured_gemm(1024, 1024, 1024, 1.2)
    corner = measured_gemm(65536, 65536, 65536)  # for the range; tells that the formula is right there
    model = model_of(TRUTH, measured=(near, corner), reach=2.0)
    found = [ratio(model, 1024, 1024, int(1024 * 2**x)) for x in (0.01, 0.5, 1, 2, 3, 5.9)]
    assert found[0] == pytest.approx(1.2, abs=0.015)
    assert found == sorted(found, reverse=True)
    assert 1.02 < found[2] < 1.19
    assert found[-1] < 1.07
    further = model_of(TRUTH, measured=(near, corner), reach=4.0)
    assert ratio(further, 1024, 1024, 4096) > ratio(model, 1024, 1024, 4096)


def fits_of(shapes):
    grid = TileGrid(profile_of(TRUTH))
    return grid.efficiency(grid.columns(shapes), GPU.num_compute_units)


def test_of_two_shapes_as_large_that_which_tiles_fit_alike_is_corrected_more():
    """One more row starts another row of tiles, one less does not."""
    near = measured_gemm(1024, 1024, 1024, 1.2)
    corners = measured_gemm(8, 64, 64), measured_gemm(65536, 65536, 65536)
    model = model_of(TRUTH, measured=(near, *corners), reach=2.0)
    alike, other = ratio(model, 1023, 1024, 1024), ratio(model, 1025, 1024, 1024)
    assert 1.05 < other < alike - 0.02
    assert alike == pytest.approx(1.2, abs=0.015)


def test_outside_the_measured_range_the_formula_stands():
    model = model_of(TRUTH, measured=grid_of(1.2), reach=2.0)
    assert ratio(model, 700, 700, 700) == pytest.approx(1.2, abs=0.02)
    for outside in ((256, 1024, 1024), (1024, 8192, 1024), (1024, 1024, 4097)):
        assert ratio(model, *outside) == 1.0


def test_without_reach_only_exact_shapes_count():
    model = model_of(TRUTH, measured=grid_of(1.2))
    assert ratio(model, 1024, 1024, 1024) == pytest.approx(1.2)
    assert ratio(model, 1025, 1024, 1024) == 1.0


def test_the_correction_changes_no_faster_than_size_and_how_tiles_fit():
    """Through and beside measured shapes that disagree."""
    rng = np.random.default_rng(0)
    rows = tuple(replace(g, time_s=g.time_s * rng.uniform(0.9, 1.2)) for g in grid_of(1.0))
    model = model_of(TRUTH, measured=rows, reach=2.0)
    for n, k in ((1000, 3000), (1024, 1024)):
        sizes = [m for m in range(513, 4096, 7) if m % 512]
        line = [ratio(model, m, n, k) for m in sizes]
        fits = fits_of([GemmShape((m,), n, k, "bf16") for m in sizes])
        refit = np.sqrt(np.mean(np.diff(fits, axis=0) ** 2, axis=1))
        assert (abs(np.diff(line)) <= 0.004 + 0.5 * refit).all()
        assert 0.85 < min(line) < max(line) < 1.25


def test_bad_kernels_spread_only_to_shapes_that_tiles_fit_alike():
    at = (1024, 1024)
    good = tuple(g for g in grid_of(1.0) if (g.m, g.n) != at)
    bad = tuple(measured_gemm(*at, k, 1.8) for k in (512, 1024, 2048, 4096))
    model = model_of(TRUTH, measured=(*good, *bad), reach=2.0)
    assert ratio(model, *at, 1024) == pytest.approx(1.8)
    assert 1.25 < ratio(model, *at, 1500) < 1.8
    assert ratio(model, 1100, 1024, 1500) == pytest.approx(1.0, abs=0.03)
    alone = model_of(TRUTH, measured=bad, reach=2.0)
    assert ratio(alone, 1100, 1024, 1500) == 1.0  # out of range


def test_a_bad_kernel_whose_siblings_are_good_counts_little():
    good = tuple(g for g in grid_of(1.0) if (g.m, g.n, g.k) != (1024, 1024, 1024))
    bad = measured_gemm(1024, 1024, 1024, 2.5)
    model = model_of(TRUTH, measured=(*good, bad), reach=2.0)
    assert ratio(model, 1024, 1024, 1024) == pytest.approx(2.5)
    assert 1.0 < ratio(model, 1024, 1024, 1040) < 2.5
    assert ratio(model, 1024, 1024, 4000) == pytest.approx(1.0, abs=0.05)
    assert ratio(model, 1100, 1024, 1024) == pytest.approx(1.0, abs=0.03)


def test_mistakes_do_not_spread():
    good = tuple(g for g in grid_of(1.0) if (g.m, g.n, g.k) != (1024, 1024, 1024))
    model = model_of(TRUTH, measured=(*good, measured_gemm(1024, 1024, 1024, 5)), reach=2.0)
    assert ratio(model, 1024, 1024, 1024) == pytest.approx(5)
    for other in ((1024, 1024, 1040), (1023, 1024, 1024)):
        assert ratio(model, *other) == pytest.approx(1.0, abs=1e-6)


def test_other_types_are_not_corrected():
    rows = tuple(replace(g, dtype="fp16") for g in grid_of(1.2))
    assert ratio(model_of(TRUTH, measured=rows, reach=2.0), 1025, 1024, 1024) == 1.0


sizes = st.integers(1, 2**16)
rows_of_tables = st.builds(
    MeasuredGemm,
    m=sizes, n=sizes, k=sizes, dtype=st.just("bf16"), time_s=st.floats(1e-7, 1e-1),
    accumulate=st.booleans(), sm_clock_hz=st.none() | st.floats(1e9, 2e9),
)  # fmt: skip


@given(
    rows=st.lists(rows_of_tables, max_size=12, unique_by=lambda g: (g.m, g.n, g.k, g.accumulate)),
    m=sizes, n=sizes, k=sizes, reach=st.just(0.0) | st.floats(0.1, 100), accumulate=st.booleans(),
    units=st.integers(1, 132),
)  # fmt: skip
@settings(max_examples=150)
def test_any_table_gives_times_above_0(rows, m, n, k, reach, accumulate, units):
    model = model_of(TRUTH, measured=tuple(rows), reach=reach)
    cost = model.cost(GemmShape((m,), n, k, "bf16", accumulate), units)
    assert 0 < cost.time_s < math.inf
    assert min(cost.startup_s, cost.body_s) >= 0
    for g in rows:
        exact = model.cost(GemmShape((g.m,), g.n, g.k, "bf16", g.accumulate))
        assert exact.time_s == pytest.approx(g.time_s)


# clocks


@pytest.mark.parametrize("exponent", [0.3, 0.8])
def test_the_power_of_the_clock_comes_back(exponent):
    """From GEMMs at clocks from 1.4 to 2 GHz; where all have one clock nothing of it is fitted."""
    rng = np.random.default_rng(3)
    profile = replace(profile_of(NEAR), sm_clock_hz=2e9)
    truth = replace(profile, rates={"bf16": replace(TRUTH, clock_exponent=exponent)})
    samples = []
    for sample in shapes(rng, 150):
        clock_hz = rng.uniform(1.4e9, 2e9)
        model = GemmModel(truth, GPU.num_compute_units, GPU.name, sm_clock_hz=clock_hz)
        time_s = model.cost(sample.shape).time_s * math.exp(rng.normal(0, NOISE))
        samples.append(replace(sample, time_s=time_s, sm_clock_hz=clock_hz))
    found = fit_gemm(samples, profile, GPU, held_out=False)
    assert found.rates.clock_exponent == pytest.approx(exponent, abs=0.05)
    assert {g.sm_clock_hz for g in measured_table(samples)} == {s.sm_clock_hz for s in samples}
    one = [replace(s, sm_clock_hz=2e9) for s in samples]
    assert "clock_exponent" not in fit_gemm(one, profile, GPU, held_out=False).fit.samples


# tables as files


@given(st.lists(rows_of_tables, min_size=1, max_size=20))
@settings(max_examples=30)
def test_tables_are_read_back_equal_and_sorted(rows):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gemm.csv"
        write_gemm_table(path, rows)
        read = read_gemm_table(path)
    assert sorted(map(astuple, read), key=repr) == sorted(map(astuple, rows), key=repr)
    assert [(g.m, g.n, g.k) for g in read] == sorted((g.m, g.n, g.k) for g in rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the columns must be m,n,k,dtype,entries,accumulate,time_s"),
        ("m,n,k\n1,2,3\n", "line 1: the columns must be"),
        ("{}", "holds no rows"),
        ("{}8,8,8,bf16,1,0\n", "line 2: another number of values than columns"),
        ("{}8,8,8,bf16,1,0,1e-6,9\n", "line 2: another number of values than columns"),
        ("{}8,-8,8,bf16,1,0,1e-6\n", "line 2: n: '-8' must be a whole number"),
        ("{}8,8,8.5,bf16,1,0,1e-6\n", "line 2: k: '8.5' must be a whole number"),
        ("{}0,8,8,bf16,1,0,1e-6\n", "line 2: m: 0 must be more than 0"),
        ("{}8,8,8,int8,1,0,1e-6\n", "line 2: dtype: 'int8' is unknown"),
        ("{}8,8,8,bf16,3,0,1e-6\n", "line 2: entries: 3 must divide the 8 rows"),
        ("{}8,8,8,bf16,1,yes,1e-6\n", "line 2: accumulate: 'yes' must be 0 or 1"),
        ("{}8,8,8,bf16,1,0,soon\n", "line 2: time_s: 'soon' must be a number"),
        ("{}8,8,8,bf16,1,0,nan\n", "line 2: time_s: nan must be more than 0"),
        ("{}8,8,8,bf16,1,0,-1e-6\n", "line 2: time_s: -1e-06 must be more than 0"),
        ("{c}8,8,8,bf16,1,0,1e-6,fast\n", "line 2: sm_clock_hz: 'fast' must be a number"),
        ("{c}8,8,8,bf16,1,0,1e-6,0\n", "line 2: sm_clock_hz: 0.0 must be more than 0"),
        ("{c}8,8,8,bf16,1,0,1e-6\n", "line 2: another number of values than columns"),
        ('{}8,8,8,"bf16,1,0,1e-6\n', "not CSV"),
    ],
)  # fmt: skip
def test_tables_that_make_no_sense_are_refused(tmp_path, text, message):
    path = tmp_path / "a.gemm.csv"
    columns = "m,n,k,dtype,entries,accumulate,time_s"
    path.write_text(text.replace("{}", f"{columns}\n").replace("{c}", f"{columns},sm_clock_hz\n"))
    with pytest.raises(FileError) as caught:
        read_gemm_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


# public measurements


def public(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"public measurements ({name}) are not in {DATA}")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def mi300x(dtype, *, layout=""):
    """Trustworthy unbatched rows of hipBLASLt; column-major there, so that N are our rows."""
    return [
        GemmSample(
            m=int(row["N"]),
            n=int(row["M"]),
            k=int(row["K"]),
            dtype=dtype,
            time_s=float(row["time_us"]) * 1e-6,
        )
        for row in public("mi300x_gemm_public.csv")
        if row["library"] == "hipBLASLt/TensileLite"
        and row["dtype"].partition("(")[0] == dtype
        and layout in row["note"]
        and not any(word in row["note"] for word in ("SUSPECT", "batched"))
    ]


def fit_on(machine, samples, reach=0.0):
    gpu = read_start(machine).gpu
    profile = replace(gpu.profile.gemm, measured=(), correction_reach=reach)
    return fit_gemm(samples, profile, gpu.gpu)


def errors_without_siblings(machine, samples):
    """Mean held-out errors of the formula, and corrected; all k of an m and n are left out at once."""
    gpu = read_start(machine).gpu
    once = list({s.shape: s for s in samples}.values())

    def model(half):
        start = replace(gpu.profile.gemm, measured=(), correction_reach=0.0)
        rates = fit_gemm(half, start, gpu.gpu, held_out=False).rates
        profile = replace(
            start,
            rates=start.rates | {half[0].dtype: rates},
            measured=measured_table(half),
            correction_reach=2.0,
        )
        return functools.cache(
            lambda clock_hz: GemmModel(
                profile, gpu.gpu.num_compute_units, gpu.gpu.name, sm_clock_hz=clock_hz
            )
        )

    told = held_out_predictions(
        once,
        model,
        lambda m, s: (m(s.sm_clock_hz), s.shape),
        folds=2,
        group=lambda s: (s.m, s.n, s.entries),
    )
    off = [[abs(f(shape).time_s / s.time_s - 1) for f in (m.formula, m.cost)] for s, (m, shape) in told]
    return np.mean(off, axis=0)


def test_mi300x_bf16_on_left_out_halves():
    rows = mi300x("bf16")
    assert len(rows) == 472
    found = fit_on("mi300x_8", rows)
    assert found.fit.num_points == 472
    assert found.fit.held_out
    assert 0.03 < found.fit.mean_error <= 0.052
    assert found.large_errors.count == 3 * sum(large(row) for row in rows)
    assert found.large_errors.mean <= 0.027


def test_mi300x_bf16_corrected_by_the_other_half():
    rows = mi300x("bf16")
    found = fit_on("mi300x_8", rows, 2.0)
    assert found.fit.mean_error <= 0.045
    assert found.large_errors.mean <= 0.024
    formula, corrected = errors_without_siblings("mi300x_8", rows)
    assert corrected < 0.95 * formula


def test_mi300x_fp8_on_left_out_rows():
    rows = mi300x("fp8", layout="layout=TN")
    assert len(rows) == 64
    assert fit_on("mi300x_8", rows).fit.mean_error <= 0.052
    assert fit_on("mi300x_8", rows, 2.0).fit.mean_error <= 0.042


def llmcompass(gpu):
    """Timed with the host's time of submission, 24 to 28 us, in every row."""
    return [
        GemmSample(
            m=int(row["M"]),
            n=int(row["N"]),
            k=int(row["K"]),
            dtype="fp16",
            time_s=float(row["time_us"]) * 1e-6,
        )
        for row in public("llmcompass_gemm_a100_mi210.csv")
        if row["gpu"].startswith(gpu)
    ]


@pytest.mark.parametrize(
    ("machine", "gpu", "num_rows"), [("a100_4", "A100", 14), ("mi210_4", "MI210", 15)]
)
def test_a100_and_mi210_fp16_on_left_out_rows(machine, gpu, num_rows):
    rows = llmcompass(gpu)
    assert len(rows) == num_rows
    found = fit_on(machine, rows)
    assert found.fit.held_out
    assert found.fit.mean_error <= 0.04


@pytest.mark.parametrize(("machine", "gpu"), [("a100_4", "A100"), ("mi210_4", "MI210")])
def test_a100_and_mi210_fp16_on_halves_from_rates_that_saw_neither(machine, gpu, monkeypatch):
    """Target is 6 %. Their own profiles saw all rows; these rates are an H200's, by peak and HBM.

    Seven rows tell little: over 20 splits in place of three it is 9.0 and 6.5 %.
    """
    own, other = read_start(machine).gpu, START
    peak = own.gpu.peak_flops_per_s["fp16"] / other.gpu.peak_flops_per_s["bf16"]
    units = other.gpu.num_compute_units / own.gpu.num_compute_units
    hbm = own.gpu.hbm_bytes_per_s / other.gpu.hbm_bytes_per_s
    rates = other.profile.gemm.rates["bf16"]
    rates = replace(
        rates,
        flops_per_s_per_unit=rates.flops_per_s_per_unit * peak * units,
        feed_bytes_per_s=rates.feed_bytes_per_s * peak,
        input_bytes_per_s=rates.input_bytes_per_s * hbm,
        output_bytes_per_s=rates.output_bytes_per_s * hbm,
    )
    profile = replace(own.profile.gemm, rates={"fp16": rates}, measured=(), correction_reach=0.0)
    monkeypatch.setattr(gemm, "MANY_POINTS", 8)  # halves, where fifths are the rule for so few
    assert fit_gemm(llmcompass(gpu), profile, own.gpu).fit.mean_error <= 0.06


# the records of the H200


@functools.cache
def recorded(folder):
    return read_inputs([RUNS / folder / "parts.jsonl.gz", RUNS / folder / "parts-fp8.jsonl.gz"])


def test_h200_bf16_on_left_out_halves():
    """Targets are 5 and 3 %; the formula alone reaches 9. Other gpus' errors are in their profiles."""
    found = fit_on("h200_8", recorded("h200_x2").gemms["bf16"], 2.0)
    assert found.fit.num_points == 542  # of 553: 11 were timed again
    assert found.fit.mean_error <= 0.05
    assert found.large_errors.mean <= 0.026
    assert 5 < len(found.bad_kernels) < 50
    assert found.bad_kernels[0].ratio > 2


def test_h200_bf16_where_all_k_of_left_out_m_and_n_are_left_out():
    """Siblings tell most; without them it is still far better than the formula."""
    formula, corrected = errors_without_siblings("h200_8", recorded("h200_x2").gemms["bf16"])
    assert corrected < min(0.062, 0.65 * formula)


def test_h200_fp8_on_left_out_halves():
    inputs = recorded("h200")
    found = fit_on("h200_8", inputs.gemms["fp8"], 2.0)
    assert found.fit.mean_error <= 0.04
    assert found.large_errors.mean <= 0.02
    assert any("fp8" in note and "entry by entry" in note for note in inputs.notes)
