"""Layer: files. Rules as YAML and as Python, learned trees as YAML; errors say where and what."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim import io
from ficco_sim.errors import FileError, RuleError
from ficco_sim.heuristics import (
    FEATURE_NAMES,
    RULES,
    Decision,
    Example,
    Features,
    RuleFault,
    RuleFile,
    best_example,
    decide,
    features_of,
    find_rule,
    learn_tree,
    load_rule_file,
    rule_from_file,
    save_rule_file,
)
from ficco_sim.heuristics.rule_file import Bounds, Case
from ficco_sim.machine import load_machine
from ficco_sim.workload import Workload, get_workload, named_workloads

PUBLISHED = Path(__file__).parent.parent / "ficco_sim" / "data" / "rules" / "published.yaml"
MESH = load_machine("mi300x_8")
MACHINES = [MESH, *map(load_machine, ("ring_8", "h200_8", "mi210_4"))]
sizes = st.integers(1, 2**17)


def gather(m: int, n: int, k: int) -> Workload:
    return Workload(name="drawn", pattern="all_gather_gemm", m=m, n=n, k=k)


def schedule(rule, workload, machine=MESH) -> str:
    decision = decide(rule, workload, machine)
    assert isinstance(decision, Decision), decision
    return decision.schedule


@examples(200)
@given(
    m=sizes,
    n=sizes,
    k=sizes,
    tau_s=st.floats(1e-7, 1.0),
    factor=st.floats(0, 50),
    machine=st.sampled_from(MACHINES),
)
def test_the_published_file_decides_as_the_built_in_rule(m, n, k, tau_s, factor, machine):
    rules = (find_rule(str(PUBLISHED)), RULES["published"])
    one, other = (r.with_parameters(tau_s=tau_s, factor=factor) for r in rules)
    assert schedule(one, gather(m, n, k), machine) == schedule(other, gather(m, n, k), machine)


def test_the_published_file_agrees_at_its_thresholds():
    one, other = find_rule(str(PUBLISHED)), RULES["published"]
    assert one.parameters == other.parameters
    workload = gather(8192, 8192, 8192)
    peak = MESH.gpu.peak_flops_per_s["bf16"]
    for factor in (1.0, 3.0, 5.0):
        for tau_s in (workload.flops / peak, workload.flops / (peak * factor)):
            values = {"tau_s": tau_s, "factor": factor}
            assert schedule(one.with_parameters(**values), workload) == schedule(
                other.with_parameters(**values), workload
            )


def written(folder: Path, text: str) -> str:
    path = folder / "rule.yaml"
    path.write_text(text)
    return str(path)


HEAD = "format_version: 1\nname: mine\n"


def test_cases_are_tried_in_order_and_all_conditions_must_hold(tmp_path):
    rule = find_rule(
        written(
            tmp_path,
            HEAD
            + """
parameters: {rows: 1000, share: 0.5}
cases:
- when: {m: {below: rows}}
  then: {schedule: serial, reason: few rows}
- when: {m: {below: 2000, at_least: rows}, k: {at_most: [share, n]}}
  then: {schedule: hetero-unfused-1d, num_chunks: 2, compute_queues: 1}
- when: {m: {above: 4000}}
  then: {schedule: shard-p2p, engine: core}
otherwise: {schedule: uniform-fused-1d}
""",
        )
    )
    assert rule.parameters == {"rows": 1000, "share": 0.5}
    assert rule.pick(gather(999, 64, 64), MESH) == Decision(schedule="serial", reason="few rows")
    assert rule.pick(gather(1000, 100, 50), MESH) == Decision(
        schedule="hetero-unfused-1d",
        num_chunks=2,
        compute_queues=1,
        reason="m 1000 < 2000, m 1000 >= 1000, k 50 <= 50",
    )
    assert schedule(rule, gather(1000, 100, 51)) == "uniform-fused-1d"
    assert schedule(rule, gather(4000, 100, 50)) == "uniform-fused-1d"
    assert rule.pick(gather(4001, 100, 50), MESH).engine == "core"
    fewer = rule.with_parameters(rows=500)
    assert schedule(fewer, gather(999, 100, 51)) == "uniform-fused-1d"


def test_a_rule_may_have_no_cases(tmp_path):
    rule = find_rule(written(tmp_path, HEAD + "otherwise: {schedule: serial}\n"))
    assert rule.pick(gather(9, 9, 9), MESH) == Decision(schedule="serial", reason="no other case holds")


def test_a_rule_file_may_be_json(tmp_path):
    path = tmp_path / "rule.json"
    path.write_text(io.dump_json(load_rule_file(PUBLISHED)))
    assert load_rule_file(path) == load_rule_file(PUBLISHED)


LAST = "otherwise: {schedule: serial}\n"
BELOW = HEAD + "cases:\n- when:\n    m:\n      below: "


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD + "cases: []\n", None, ["otherwise: missing"]),
        ("format_version: 2\nname: x\n" + LAST, 1, ["format_version: 2"]),
        (HEAD + "case: []\n" + LAST, 3, ["case: unknown key"]),
        (HEAD + "otherwise: {schedule: fast}\n", 3, ["otherwise", "'fast' is unknown", "serial"]),
        (HEAD + "otherwise: {schedule: 3}\n", 3, ["otherwise.schedule", "3", "string"]),
        (HEAD + "otherwise:\n  schedule: serial\n  num_chunks: 2\n", 3, ["num_chunks: 2", "serial"]),
        (HEAD + "otherwise:\n  schedule: hetero-fused-1d\n  num_chunks: 2.5\n", 5,
         ["otherwise.num_chunks", "2.5", "integer"]),
        (HEAD + "otherwise:\n  schedule: hetero-fused-1d\n  chunks: 2\n", 5,
         ["otherwise.chunks: unknown key"]),
        (HEAD + "otherwise: {schedule: all-gather}\n", 3, ["all-gather", "no plan"]),
        (HEAD + "parameters:\n  tau: 1\n  m: 3\n" + LAST, 5, ["parameters.m", "no feature's name"]),
        (HEAD + "parameters:\n  tau: -1\n" + LAST, 4, ["parameters.tau: -1"]),
        (HEAD + "parameters:\n  tau: soon\n" + LAST, 4, ["parameters.tau", "'soon'", "number"]),
        (HEAD + "cases:\n- when: {}\n  then: {schedule: serial}\n" + LAST, 4, ["cases[0]", "when"]),
        (HEAD + "cases:\n- when:\n    m: {below: 3}\n    rows: {below: 3}\n  then: {schedule: serial}\n"
         + LAST, 6, ["cases[0]", "when.rows", "'rows' is no feature", "gathered_bytes"]),
        (BELOW + "kay\n  then: {schedule: serial}\n" + LAST, 6,
         ["cases[0].when.m.below", "'kay'", "no parameter", "no feature"]),
        (BELOW + "[2, kay]\n  then: {schedule: serial}\n" + LAST, 6,
         ["'kay'"]),
        (BELOW + "[]\n  then: {schedule: serial}\n" + LAST, 6,
         ["below", "empty"]),
        (BELOW + "{tau: 3}\n  then: {schedule: serial}\n" + LAST, 6,
         ["below: {'tau': 3}", "must be a number, a name, or a list"]),
        (HEAD + "cases:\n- when:\n    m: {under: 3}\n  then: {schedule: serial}\n" + LAST, 5,
         ["cases[0].when.m.under: unknown key"]),
        (HEAD + "cases:\n- when:\n    m: {}\n  then: {schedule: serial}\n" + LAST, 5,
         ["cases[0].when.m", "at least one is needed"]),
        (HEAD + "cases:\n- when: {m: {below: 1}}\n" + LAST, 4, ["cases[0].then: missing"]),
        (HEAD + "cases: [\n" + LAST, 5, ["not YAML"]),
        (HEAD + "name: again\n" + LAST, 3, ["name"]),
        ("- 1\n", None, ["rule.yaml"]),
        ("", None, ["rule.yaml"]),
    ],
)  # fmt: skip
def test_a_bad_file_gets_an_error_with_file_line_key_value_and_rule(tmp_path, text, line, words):
    path = written(tmp_path, text)
    with pytest.raises(FileError) as caught:
        find_rule(path)
    message = str(caught.value)
    place = path if line is None else f"{path}: line {line}:"
    assert message.startswith(place), message
    for word in words:
        assert word in message


numbers = st.floats(0, 1e15) | st.integers(0, 10**12)
thresholds = (
    numbers
    | st.sampled_from(FEATURE_NAMES)
    | st.lists(numbers | st.sampled_from((*FEATURE_NAMES, "tau")), min_size=1, max_size=3).map(tuple)
)
bounds = st.dictionaries(
    st.sampled_from(["below", "at_most", "above", "at_least"]), thresholds, min_size=1
).map(lambda given: Bounds(**given))
decisions = st.sampled_from(
    [
        Decision(schedule="serial"),
        Decision(schedule="shard-p2p", reason="why: because"),
        Decision(schedule="hetero-unfused-1d", num_chunks=2, compute_queues=4, engine="core"),
    ]
)
cases = st.builds(
    Case, when=st.dictionaries(st.sampled_from(FEATURE_NAMES), bounds, min_size=1), then=decisions
)
files = st.builds(
    RuleFile,
    format_version=st.just(1),
    name=st.just("drawn"),
    parameters=st.just({"tau": 0.5}),
    cases=st.lists(cases, max_size=3).map(tuple),
    otherwise=decisions,
)


@examples(60)
@given(file=files, m=sizes, n=sizes, k=sizes)
def test_written_files_read_back_and_decide_alike(tmp_path_factory, file, m, n, k):
    path = tmp_path_factory.mktemp("rules") / "rule.yaml"
    save_rule_file(file, path)
    again = load_rule_file(path)
    assert io.to_plain(again) == io.to_plain(file)
    one, other = rule_from_file(file), rule_from_file(again)
    answer = decide(one, gather(m, n, k), MESH)
    assert answer == decide(other, gather(m, n, k), MESH)
    assert isinstance(answer, Decision)


PYTHON = '''"""A user's rules."""
from dataclasses import dataclass

@dataclass
class Limit:
    rows: "int" = 100

def mine(f, tau_s=1e-3, factor=5):
    """Serial when short.

    More words."""
    return "serial" if f.gemm_s < tau_s * factor else {"schedule": "hetero-unfused-1d", "num_chunks": 4}

def breaks(f):
    return f.rows

def no_arguments():
    return "serial"

def needs_more(f, limit):
    return "serial"

number = 3
'''


@pytest.fixture
def python_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PYTHON)
    yield path
    sys.modules.pop("ficco_rule_mine", None)


def test_a_python_function_is_a_rule_with_its_defaults_as_parameters(python_file):
    rule = find_rule(f"{python_file}:mine")
    assert rule.name == f"{python_file}:mine"
    assert rule.description == "Serial when short."
    assert rule.parameters == {"tau_s": 1e-3, "factor": 5}
    workload = gather(8192, 7168, 8192)
    assert schedule(rule, workload) == "serial"
    decision = decide(rule.with_parameters(factor=1), workload, MESH)
    assert decision == Decision(schedule="hetero-unfused-1d", num_chunks=4)


def test_a_python_rule_that_throws_says_where(python_file):
    fault = decide(find_rule(f"{python_file}:breaks"), gather(64, 64, 64), MESH)
    assert isinstance(fault, RuleFault)
    line = PYTHON.splitlines().index("    return f.rows") + 1
    assert fault.message.startswith(f"AttributeError at mine.py:{line}: ")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("none", "defines no function 'none'"),
        ("number", "defines no function 'number'"),
        ("no_arguments", "must take one argument"),
        ("needs_more", "'limit' needs a number as its default"),
    ],
)
def test_functions_that_are_no_rules_are_refused(python_file, function, words):
    with pytest.raises(RuleError) as caught:
        find_rule(f"{python_file}:{function}")
    assert str(python_file) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "line 1: SyntaxError"),
        ("x = 1\nraise KeyError('gone')\n", "line 2: KeyError: 'gone'"),
        ("import sys\n\nsys.exit(4)\n", "line 3: SystemExit: 4"),
    ],
)
def test_python_files_that_do_not_run_are_refused(tmp_path, text, words):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(RuleError) as caught:
        find_rule(f"{path}:f")
    assert str(caught.value).startswith(f"{path}: {words}")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("publishd", RuleError, "'publishd' is unknown; a file, or one of: published,"),
        ("none.yaml", FileError, "none.yaml: no such file"),
        ("none.py:f", FileError, "none.py: no such file"),
        ("rule.py", RuleError, "rule.py:FUNCTION"),
        ("rule.txt:f", RuleError, "unknown"),
        ("", RuleError, "unknown"),
    ],
)
def test_names_of_no_rule_are_refused(tmp_path, monkeypatch, text, error, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        find_rule(text)
    assert words in str(caught.value)


def scenarios(count: int):
    """Many different shapes and machines, without randomness."""
    for i in range(count):
        shape = [64 * (1 + (i * step) % 509) for step in (7, 11, 13)]
        yield gather(*shape), MACHINES[i % len(MACHINES)]


def test_a_tree_learns_a_rule_of_thresholds(tmp_path):
    pytest.importorskip("sklearn")
    rule = find_rule(str(PUBLISHED)).with_parameters(factor=1e9)
    found = [best_example(w, m, rule.pick(w, m)) for w, m in scenarios(200)]
    learned = learn_tree(
        found, max_depth=3, min_examples=1, features=("roofline_s", "m", "k", "otb_flops_per_byte")
    )
    save_rule_file(learned, tmp_path / "tree.yaml")
    tree = find_rule(str(tmp_path / "tree.yaml"))
    right = [schedule(tree, e.workload, e.machine) == next(iter(e.regrets)).schedule for e in found]
    assert sum(right) > 0.85 * len(right)
    assert tree.pick(*next(scenarios(1))).reason


def test_a_tree_prefers_small_regret_to_being_best_most_often():
    pytest.importorskip("sklearn")
    safe, bold = Decision(schedule="serial"), Decision(schedule="hetero-fused-1d", num_chunks=4)
    found = [
        Example(
            workload=workload,
            machine=machine,
            regrets={safe: 0.5, bold: 0.0} if i % 10 == 0 else {safe: 0.0, bold: 0.01},
        )
        for i, (workload, machine) in enumerate(scenarios(40))
    ]
    learned = learn_tree(found, max_depth=1, min_examples=20, features=["num_gpus"])
    assert not learned.cases  # both sides decide the same
    assert learned.otherwise == bold


def test_a_tree_never_picks_what_some_examples_cannot_run():
    pytest.importorskip("sklearn")
    ring = Decision(schedule="shard-ring")
    exchange = get_workload("mixtral-8x7b-ep8-gate-up-2k")
    found = [best_example(gather(64 * i, 64, 64), MESH, ring) for i in range(1, 30)]
    found.append(best_example(exchange, MESH, Decision(schedule="serial")))
    assert learn_tree(found).otherwise.schedule == "serial"


def test_the_same_examples_give_the_same_tree():
    pytest.importorskip("sklearn")
    found = [best_example(w, MESH, RULES["published"].pick(w, MESH)) for w in
             named_workloads().values() if features_of(w, MESH)]  # fmt: skip
    one, other = (learn_tree(found, min_examples=2, seed=3) for _ in range(2))
    assert io.dump_yaml(one) == io.dump_yaml(other)
    assert one.cases


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_depth": 0}, "max_depth: 0 must be from 1"),
        ({"max_depth": 9}, "max_depth: 9"),
        ({"min_examples": 0}, "min_examples: 0"),
        ({"features": ["rows"]}, "'rows' is unknown"),
    ],
)
def test_wrong_arguments_of_learning_are_refused(arguments, words):
    found = [best_example(gather(64, 64, 64), MESH, Decision(schedule="serial"))]
    with pytest.raises(RuleError) as caught:
        learn_tree(found, **arguments)
    assert words in str(caught.value)


def test_learning_from_nothing_is_refused():
    with pytest.raises(RuleError, match="at least one"):
        learn_tree([])


def test_learning_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    found = [best_example(gather(64, 64, 64), MESH, Decision(schedule="serial"))]
    with pytest.raises(RuleError, match=r"pip install 'ficco\[learn\]'"):
        learn_tree(found)


def blocks(language: str) -> list[str]:
    text = (PUBLISHED.parents[3] / "docs" / "rules.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_documented_file_is_a_rule(tmp_path):
    (text,) = blocks("yaml")
    rule = find_rule(written(tmp_path, text))
    assert schedule(rule, gather(64, 64, 64)) == "serial"
    assert schedule(rule, gather(32768, 2048, 8192)) == "hetero-unfused-1d"
    assert schedule(rule, gather(8192, 2048, 32768)) == "uniform-fused-1d"


def test_the_documented_function_is_a_rule(tmp_path):
    (text,) = blocks("python")
    (tmp_path / "documented.py").write_text(text)
    rule = find_rule(f"{tmp_path / 'documented.py'}:mine")
    assert rule.parameters == {"tau_s": 1e-3}
    assert schedule(rule, gather(64, 64, 64)) == "serial"
    assert schedule(rule, gather(32768, 7168, 8192)) == "hetero-unfused-1d"


def test_all_features_are_documented():
    text = (PUBLISHED.parents[3] / "docs" / "rules.md").read_text()
    listed = set(re.findall(r"`(\w+)`", text[text.index("## Features") :]))
    assert set(FEATURE_NAMES) <= listed
    documented = set(re.findall(r"^    ((?:\w+, )*\w+)$", Features.__doc__, re.MULTILINE))
    assert set(FEATURE_NAMES) <= {name for line in documented for name in line.split(", ")}
