"""Layer: plan. Workloads: what is refused and how it is named, parts, sizes, and the named ones."""

import json
from dataclasses import asdict, fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ficco_sim.errors import FileError, WorkloadError
from ficco_sim.workload import (
    DTYPE_BYTES,
    EXCHANGES,
    OUTPUT_DTYPE,
    PATTERNS,
    Workload,
    WorkloadSet,
    get_workload,
    load_workloads,
    named_workloads,
    split,
)

PLAIN = Workload(name="plain", pattern="all_gather_gemm", m=8, n=4, k=2)
ROUTED = Workload(name="routed", pattern="all_to_all_gemm", m=5, n=4, k=2, tokens=((1, 2), (4, 0)))
NOT_SIZES = [0, -1, 10**9 + 1, 2**70, float("nan"), float("inf"), 8.0, True, False, "8", None, [8]]
MODELS = [
    "Llama-3 8B",
    "Llama-3 70B",
    "Llama-3 405B",
    "Qwen2.5-72B",
    "GPT-3",
    "Mixtral",
    "DeepSeek-V3",
]


def saved(tmp_path, *workloads, **changes):
    path = tmp_path / "own.json"
    entries = [asdict(w) | changes for w in workloads]
    path.write_text(json.dumps({"format_version": 1, "workloads": entries}), encoding="utf-8")
    return path


class TestValidation:
    @pytest.mark.parametrize("key", ["m", "n", "k"])
    @pytest.mark.parametrize("value", NOT_SIZES, ids=repr)
    def test_size(self, key, value):
        with pytest.raises(WorkloadError, match=f"^{key}: ") as caught:
            replace(PLAIN, **{key: value})
        assert repr(value) in str(caught.value)

    @given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 10**9))
    def test_every_size_in_range_is_accepted(self, m, n, k):
        workload = replace(PLAIN, m=m, n=n, k=k)
        assert (workload.m, workload.n, workload.k) == (m, n, k)

    @pytest.mark.parametrize("value", [v for v in NOT_SIZES if v is not None], ids=repr)
    def test_num_tokens(self, value):
        with pytest.raises(WorkloadError, match=r"^num_tokens: "):
            replace(PLAIN, num_tokens=value)

    @pytest.mark.parametrize("value", ["all-gather", "", None, 3, ["gemm"]], ids=repr)
    def test_pattern(self, value):
        with pytest.raises(WorkloadError, match=r"^pattern: .* is unknown; one of .*all_to_all_gemm"):
            replace(PLAIN, pattern=value)

    @pytest.mark.parametrize("value", ["bf17", "BF16", "", None, 16, ["bf16"]], ids=repr)
    def test_dtype(self, value):
        with pytest.raises(WorkloadError, match=r"^dtype: .* is unknown; one of bf16.*fp32"):
            replace(PLAIN, dtype=value)

    def test_tokens_are_for_all_to_all_alone(self):
        with pytest.raises(WorkloadError, match=r"^tokens: needed for all_to_all_gemm"):
            replace(ROUTED, tokens=None)
        for pattern in PATTERNS:
            if pattern not in EXCHANGES:
                with pytest.raises(WorkloadError, match=r"^tokens: needed for all_to_all_gemm"):
                    replace(ROUTED, pattern=pattern)

    @pytest.mark.parametrize("tokens", [((1, 2), (4,)), ((1, 2),), ((1,), (4,)), ((5, 5, 5),)])
    def test_tokens_not_square(self, tokens):
        with pytest.raises(WorkloadError, match=r"^tokens\[\d\]: \d values; a square matrix of"):
            replace(ROUTED, tokens=tokens)

    @pytest.mark.parametrize("tokens", [5, "ab", (5, 5), ("12", "40"), [[1, 2], [4, 0]]], ids=repr)
    def test_tokens_not_a_matrix(self, tokens):
        with pytest.raises(WorkloadError, match=r"^tokens"):
            replace(ROUTED, tokens=tokens)

    @pytest.mark.parametrize("value", [v for v in NOT_SIZES if v != 0 or v is False], ids=repr)
    def test_tokens_element(self, value):
        with pytest.raises(WorkloadError, match=r"^tokens\[1\]\[0\]: "):
            replace(ROUTED, tokens=((1, 2), (value, 0)))

    @pytest.mark.parametrize("m", [1, 4, 6])
    def test_m_is_that_of_the_busiest_gpu(self, m):
        with pytest.raises(WorkloadError, match=f"^m: {m} must be the rows of the busiest gpu, 5"):
            replace(ROUTED, m=m)

    def test_tokens_empty(self):
        with pytest.raises(WorkloadError, match="busiest gpu, 0 in the tokens"):
            replace(ROUTED, tokens=())

    @given(st.integers(1, 6).flatmap(
        lambda p: st.lists(st.lists(st.integers(0, 99), min_size=p, max_size=p), min_size=p, max_size=p)
    ))  # fmt: skip
    def test_any_square_matrix_is_accepted_with_its_m(self, rows):
        tokens = tuple(map(tuple, rows))
        busiest = max(map(sum, zip(*rows, strict=True)))
        if busiest:
            assert replace(ROUTED, tokens=tokens, m=busiest).tokens == tokens


class TestSizes:
    @given(
        st.integers(1, 10**6),
        st.integers(1, 10**6),
        st.integers(1, 10**6),
        st.sampled_from(list(DTYPE_BYTES)),
    )
    def test_closed_forms(self, m, n, k, dtype):
        workload = replace(PLAIN, m=m, n=n, k=k, dtype=dtype)
        size = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}[dtype]
        out = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}[dtype]
        assert workload.flops == 2 * m * n * k
        assert workload.element_bytes == size
        assert workload.gathered_bytes == m * k * size
        assert workload.gemm_bytes == (m * k + k * n) * size + m * n * out
        assert replace(workload, pattern="all_gather").flops == 0

    def test_output_dtypes_are_dtypes(self):
        assert set(OUTPUT_DTYPE) == set(DTYPE_BYTES)
        assert set(OUTPUT_DTYPE.values()) <= set(DTYPE_BYTES)


class TestSplit:
    @given(st.integers(0, 10**9), st.integers(1, 2000))
    def test_parts_cover_everything_and_differ_by_at_most_one(self, total, parts):
        cut = split(total, parts)
        sizes = [hi - lo for lo, hi in cut]
        assert len(cut) == parts
        assert cut[0][0] == 0
        assert cut[-1][1] == total
        assert all(a[1] == b[0] for a, b in pairwise(cut))
        assert sum(sizes) == total
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes) >= 0

    def test_4099_rows_on_8_gpus(self):
        assert [hi - lo for lo, hi in split(4099, 8)] == [513] * 3 + [512] * 5

    def test_fewer_rows_than_parts(self):
        assert split(2, 4) == ((0, 1), (1, 2), (2, 2), (2, 2))

    @pytest.mark.parametrize(("total", "parts"), [(-1, 2), (4, 0), (4, -1)])
    def test_impossible(self, total, parts):
        with pytest.raises(WorkloadError, match=f"cannot cut {total} into {parts} parts"):
            split(total, parts)


class TestNamed:
    def test_at_least_twenty(self):
        assert len(named_workloads()) >= 20

    @pytest.mark.parametrize("model", MODELS)
    def test_model_is_there(self, model):
        assert any(w.model.startswith(model) for w in named_workloads().values())

    @pytest.mark.parametrize("parallelism", ["TP8 + SP", "FSDP8", "CP8", "EP8"])
    def test_parallelism_is_there(self, parallelism):
        assert any(w.parallelism.startswith(parallelism) for w in named_workloads().values())

    def test_each_says_where_it_comes_from(self):
        for name, workload in named_workloads().items():
            assert workload.name == name
            for key in ("model", "layer", "parallelism", "source"):
                assert getattr(workload, key).strip(), (name, key)
            assert workload.num_tokens is not None, name

    def test_rows_follow_from_the_tokens(self):
        """Tensor parallelism gathers tokens as rows, FSDP multiplies with them as columns."""
        for name, w in named_workloads().items():
            if w.parallelism.startswith("TP"):
                assert w.m == w.num_tokens, name
            elif w.parallelism.startswith("FSDP"):
                assert w.n == w.num_tokens, name
            elif w.pattern == "all_to_all_gemm":
                assert len(w.tokens) == 8, name
                for row in w.tokens:  # every token goes to top_k experts
                    assert sum(row) % w.num_tokens == 0, name

    @pytest.mark.parametrize(
        ("model", "layer", "mnk"),
        [
            # (q heads + 2 kv heads) x head size / 8; 2 x hidden / 8; from the published dimensions
            ("Llama-3 8B", "attention q, k, v", (None, (32 + 2 * 8) * 128 // 8, 4096)),
            ("Llama-3 70B", "attention q, k, v", (None, (64 + 2 * 8) * 128 // 8, 8192)),
            ("Llama-3 405B", "attention q, k, v", (None, (128 + 2 * 8) * 128 // 8, 16384)),
            ("Qwen2.5-72B", "attention q, k, v", (None, (64 + 2 * 8) * 128 // 8, 8192)),
            ("GPT-3 175B", "attention q, k, v", (None, 3 * 96 * 128 // 8, 12288)),
            ("Llama-3 8B", "MLP gate and up", (None, 2 * 14336 // 8, 4096)),
            ("Llama-3 70B", "MLP gate and up", (None, 2 * 28672 // 8, 8192)),
            ("Llama-3 405B", "MLP gate and up", (None, 2 * 53248 // 8, 16384)),
            ("Qwen2.5-72B", "MLP gate and up", (None, 2 * 29568 // 8, 8192)),
            ("GPT-3 175B", "MLP up", (None, 4 * 12288 // 8, 12288)),
        ],
    )
    def test_tensor_parallel_shapes(self, model, layer, mnk):
        found = [
            w
            for w in named_workloads().values()
            if (w.model, w.layer) == (model, layer) and w.parallelism.startswith("TP8")
        ]
        assert found
        assert {(w.n, w.k) for w in found} == {mnk[1:]}


class TestFiles:
    def test_get_by_name_and_by_file(self, tmp_path):
        name, workload = next(iter(named_workloads().items()))
        assert get_workload(name) is workload
        assert get_workload(str(saved(tmp_path, PLAIN))) == PLAIN
        assert load_workloads(saved(tmp_path, PLAIN, ROUTED)) == (PLAIN, ROUTED)

    def test_yaml(self, tmp_path):
        path = tmp_path / "own.yaml"
        path.write_text(
            "format_version: 1\n"
            "workloads:\n"
            "  - {name: mine, pattern: all_gather_gemm, m: 8, n: 4, k: 2, dtype: fp8}\n",
            encoding="utf-8",
        )
        assert get_workload(str(path)) == replace(PLAIN, name="mine", dtype="fp8")

    def test_unknown_name_lists_the_known_ones(self):
        with pytest.raises(WorkloadError, match="'llama' is unknown") as caught:
            get_workload("llama")
        assert all(name in str(caught.value) for name in named_workloads())

    def test_a_file_of_several_names_them(self, tmp_path):
        with pytest.raises(WorkloadError, match=r"several workloads \(plain, routed\)"):
            get_workload(str(saved(tmp_path, PLAIN, ROUTED)))

    def test_names_occur_once_and_a_set_is_not_empty(self):
        with pytest.raises(WorkloadError, match="'plain' occurs twice"):
            WorkloadSet(format_version=1, workloads=(PLAIN, PLAIN))
        with pytest.raises(WorkloadError, match="workloads, operators: both lists are empty"):
            WorkloadSet(format_version=1, workloads=())

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"m": 0}, "m: 0 must be from 1"),
            ({"m": 8.5}, "workloads[0].m: 8.5"),
            ({"m": "8"}, "workloads[0].m: '8'"),
            ({"m": True}, "workloads[0].m: True"),
            ({"n": None}, "workloads[0].n: None"),
            ({"dtype": "bf17"}, "dtype: 'bf17' is unknown"),
            ({"pattern": "gather"}, "workloads[0].pattern: 'gather'"),
            ({"tokens": [[8]]}, "tokens: needed for all_to_all_gemm"),
            ({"tokens": [["8"]]}, "workloads[0].tokens[0][0]: '8'"),
            ({"rows": 8}, "workloads[0].rows: unknown key"),
        ],
    )
    def test_errors_name_file_and_key(self, tmp_path, changes, said):
        path = saved(tmp_path, PLAIN, **changes)
        with pytest.raises(FileError) as caught:
            load_workloads(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert said in str(caught.value)

    def test_every_field_survives_a_file(self, tmp_path):
        texts = {f.name: f"some {f.name}" for f in fields(Workload) if f.type in (str, "str")} | {
            "dtype": "fp16"
        }
        workload = replace(ROUTED, num_tokens=7, **texts)
        assert load_workloads(saved(tmp_path, workload)) == (workload,)
