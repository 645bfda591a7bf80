"""Layer: documents. The figures of docs/concepts.md show what its text says, and are up to date."""

import re
import sys
from pathlib import Path

import pytest

from ficco_sim.metrics import compute_waits

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "concepts.md").read_text()
MS = 1e3
# quick to draw; the others take a comparison each
REDRAWN = ("overlap", "links", "chunks", "axes", "engines", "ideal", "decomposition", "contention",
           "submission", "relay", "labels")  # fmt: skip


@pytest.fixture(scope="module")
def figures():
    sys.path.insert(0, str(DOCS))
    try:
        import figures

        yield figures
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def data(figures):
    return figures.data


def words_of(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def section(title: str) -> str:
    """Text of a section in one line, without Markdown's stars."""
    body = PAGE.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    return " ".join(body.replace("*", "").split())


def test_figures_are_linked_and_committed_and_made_by_the_script(figures):
    linked = []
    for page in DOCS.glob("*.md"):
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
            assert len(alt) > 20, f"{page.name}: {target} needs words for who cannot see it"
            linked.append(Path(target).stem)
    committed = {path.stem for path in (DOCS / "figures").iterdir()}
    assert sorted(linked) == sorted(committed) == sorted(figures.FIGURES)


def test_every_concept_has_a_figure():
    for part in PAGE.split("\n## ")[1:]:
        assert part.count("![") == 1, part.splitlines()[0]


@pytest.mark.parametrize("path", sorted((DOCS / "figures").glob("*.svg")), ids=lambda p: p.stem)
def test_committed_figures_are_small_and_fit_a_phone(path):
    svg = path.read_text()
    assert len(svg) < 60_000
    assert "<metadata" not in svg
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    assert width <= 390
    assert min(float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)) >= 7
    assert not re.search(r"mathdefault|nan|inf\b", " ".join(words_of(svg)))


def test_the_script_draws_what_is_committed(figures, tmp_path):
    figures.write(tmp_path, REDRAWN)
    for name in REDRAWN:
        made = (tmp_path / f"{name}.svg").read_text()
        committed = (DOCS / "figures" / f"{name}.svg").read_text()
        hint = f"{name}: run python docs/figures.py docs/figures, and look at it"
        assert words_of(made) == words_of(committed), hint
        assert made.count("<path") == committed.count("<path"), hint


def test_an_unknown_figure_is_named(figures):
    with pytest.raises(SystemExit, match="'nonsense' is unknown; one of: overlap, links"):
        figures.main(["out", "nonsense"])


def test_overlap_lies_between_ideal_and_serial(data):
    serial, cut = data.run("serial").result, data.run("hetero-batched-1d", num_chunks=4).result
    assert serial.ideal_s < cut.makespan_s < serial.makespan_s
    text = section("Serial and overlap")
    for time_s in (serial.ideal_s, serial.breakdown.gemm_s, cut.makespan_s, serial.makespan_s):
        assert f"{time_s * MS:.2f} ms" in text


def most_at_once(run) -> int:
    spans = [s for s in run.trace.spans if s.kind == "transfer" and s.queue.gpu == 0]
    return max(sum(a.start_s <= b.start_s < a.end_s for a in spans) for b in spans)


def test_shard_level_uses_one_link_and_loses_where_finer_chunks_use_all(data):
    shard, finer = data.run("shard-p2p"), data.run("hetero-batched-1d", num_chunks=4)
    assert most_at_once(shard) == 1
    assert most_at_once(finer) == 7
    assert shard.result.speedup < 1 < finer.result.speedup
    assert shard.result.comm_dil == pytest.approx(7, rel=0.02)
    assert f"{shard.result.speedup:.2f}x of serial" in section("Shards and chunks")


@pytest.mark.parametrize("shape", ["1d", "2d"])
def test_a_step_brings_one_chunk_from_every_peer(data, shape):
    regions = data.chunk_regions(f"hetero-unfused-{shape}")
    for step in range(4):
        assert sorted(region.gpu for found, region in regions if found == step) == [1, 2, 3]
    assert sum(region.num_elements for _, region in regions) == 24 * 16
    full = {"1d": 16, "2d": 8}[shape]
    assert {region.shape[shape == "1d"] for _, region in regions} == {full}


def first_wait_s(run) -> float:
    starts = [s.start_s for s in run.trace.spans if s.queue.gpu == 0 and s.kind == "gemm"]
    return min(starts)


def test_uniform_waits_for_the_first_chunks_and_hetero_does_not(data):
    for name in data.FICCO:
        run = data.run(name, num_chunks=4)
        own_first = first_wait_s(run) < 1e-5
        assert own_first == (name.startswith("hetero") or "unfused" in name), name
        copies = any(s.kind == "local_copy" for s in run.trace.spans)
        assert copies == ("-fused" in name), name


def test_copy_kernels_slow_both_sides_and_engines_only_the_gemm(data):
    for machine in (data.MESH, data.SWITCH):
        by = {
            engine: data.run(
                "hetero-batched-1d", data.LONG, machine, num_chunks=4, engine=engine
            ).result
            for engine in ("dma", "core")
        }
        assert by["core"].makespan_s > by["dma"].makespan_s
        assert by["core"].gemm_cil > by["dma"].gemm_cil > 1
        assert by["core"].comm_cil > 1.3
        assert by["dma"].comm_cil == pytest.approx(1)
        for loss in (by["core"].gemm_cil, by["core"].comm_cil):
            assert f"{loss - 1:.0%}".removesuffix("%") in section("Contention loss")


def test_ideal_and_its_fraction(data):
    best = data.run("hetero-batched-1d", num_chunks=8).result
    most = best.speedup * best.makespan_s / best.ideal_s
    text = section("The ideal bound")
    assert (
        f"({best.speedup:.2f} - 1) / ({most:.2f} - 1) = {best.fraction_of_ideal:.0%}".replace("%", " %")
        in text
    )
    assert best.fraction_of_ideal == pytest.approx((best.speedup - 1) / (most - 1))


def test_more_chunks_lose_more_and_unfused_ones_most(data):
    losses = data.decomposition()
    for row in (*losses.gemm.values(), losses.communication):
        assert row == sorted(row)
        assert row[0] >= 1
    at_8 = {name: row[data.CHUNKS.index(8)] for name, row in losses.gemm.items()}
    assert max(at_8, key=at_8.get) == "hetero-unfused-1d"
    text = section("Decomposition loss")
    assert f"take {at_8['hetero-unfused-1d']:.1f} times" in text
    assert f"{losses.communication[-1]:.2f}" in text


def test_only_eager_plans_wait_for_the_host(data):
    graph, eager = (
        data.run("hetero-unfused-1d", "llama3-70b-tp8-qkv-4k", data.MESH, kind, num_chunks=4)
        for kind in ("graph", "eager")
    )
    assert not any(w.cause == "host" for w in compute_waits(graph.plan, graph.trace))
    assert any(w.cause == "host" for w in compute_waits(eager.plan, eager.trace))
    longer = eager.result.makespan_s / graph.result.makespan_s - 1
    assert f"{longer:.0%} longer".replace("%", " %") in section("Submission")


def test_pieces_go_hop_by_hop_and_sooner_than_whole_shards(data):
    whole = data.journey(data.run("shard-ring", machine=data.RING))
    cut = data.journey(data.run("uniform-unfused-1d", machine=data.RING, num_chunks=4))
    assert sorted((gpu, chunk) for _, _, gpu, chunk in cut) == [
        (gpu, chunk) for gpu in range(1, 8) for chunk in range(4)
    ]
    arrived = {(gpu, chunk): (start_s, end_s) for start_s, end_s, gpu, chunk in cut}
    for chunk in range(4):
        for gpu in (2, 3):  # from gpu 1, one hop after the other
            assert arrived[gpu, chunk][0] >= arrived[gpu - 1, chunk][1]
    ends = [max(end_s for _, end_s, _, _ in rows) for rows in (whole, cut)]
    assert ends[1] < 0.6 * ends[0]
    text = section("Relaying")
    for end_s in ends:
        assert f"{end_s * MS:.1f} ms" in text


def test_the_bell_has_its_top_where_gemm_and_communication_are_equal(data):
    columns = [data.COLUMNS[i] for i in (0, 4, 7, 10, 13, 17, 18)]
    points = data.bell(columns)
    top = max(points, key=lambda p: p.ideal)
    assert top.ratio == pytest.approx(1, rel=0.05)
    assert top.ideal == pytest.approx(2, rel=0.02)
    assert top is max(points, key=lambda p: p.finer)
    for values in ([p.ideal for p in points], [p.finer for p in points]):
        peak = points.index(top)
        assert values[: peak + 1] == sorted(values[: peak + 1])
        assert values[peak:] == sorted(values[peak:], reverse=True)
    assert all(p.shard < 1 for p in points)
    assert points[-2].finer > 1 > points[-1].finer
    text = section("When overlap loses")
    assert f"{top.finer:.2f}x" in text
    assert f"about {points[-1].ratio:.0f} on" in text
    assert f"{top.slower:.0%} of".replace("%", " %") in text


def test_errors_of_the_formula_are_as_the_page_says(data):
    points, median = data.gemm_errors()
    text = section("What calibration knows")
    assert f"within {median:.1%}".replace("%", " %") in text
    assert f"of {len(points)} GEMM shapes" in text
    slowest = max(1 / ratio for _, ratio in points)
    assert f"up to {slowest:.1f} times" in text
    assert max(ratio for _, ratio in points) < slowest  # the tail is one-sided


def test_some_schedules_of_the_figure_are_too_close_to_call():
    words = words_of((DOCS / "figures" / "too_close.svg").read_text())
    assert sum(word.endswith(" ~") for word in words) >= 1


def test_labels_are_all_counted_and_h200_rests_on_measurements(data):
    counts = data.label_counts()
    assert set().union(*counts.values()) <= set(data.LABELS)
    for gpu, count in counts.items():
        measured_most = count["measured"] == max(count.values())
        assert measured_most == (gpu == "H200"), gpu
    for gpu in ("A40", "V100", "MI250X"):
        assert set(counts[gpu]) == {"estimated"}
