"""Layer: documents. Tables of docs/files.md against files and results: keys both ways, and kinds."""

import csv
import gzip
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from cli_support import run

from ficco_sim import io
from ficco_sim.heuristics import find_rule
from ficco_sim.machine import load_machine
from ficco_sim.records import read_records
from ficco_sim.scenarios import load_scenarios
from hw_validate.__main__ import main as hw_main
from hw_validate.summary import CollectiveRow

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "files.md").read_text()
RUNS = ROOT / "hw_validate" / "runs"
KEYS = re.compile(r"\{(.*)\}")
FIXED = re.compile(r"\{.*?\}")
LINK = re.compile(r"\[(\w+)\]\(#[\w-]+\)")
SMALL = ("--gemm", "512,128,256", "--machine", "mi210_4")
OUT = ("--json", "-")


def read_tables(page: str) -> dict[str, dict[str, str]]:
    """What each key holds, by heading; a row may name several keys."""
    tables = {}
    for title, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| (`.+?) \| (.*?) \| .*\|$", body, re.MULTILINE)
        assert title not in tables
        tables[title] = {key: holds for keys, holds in rows for key in re.findall(r"`(\w+)`", keys)}
    return tables


TABLES = read_tables(PAGE)
ELSEWHERE = {
    "plan": "`plan` ([Plan](#plan))",
    "schema": "`schema`",
    "topology make": "And `topology make`; `topology import` adds",
    "topology import": "And `topology make`; `topology import` adds",
    **dict.fromkeys(
        (f"scenarios make {maker}" for maker in ("grid", "measured", "named", "random")),
        "And `scenarios make`.",
    ),
    "hw_validate microbench": "And `microbench`.",
}
SCALARS = {
    "text": lambda value: isinstance(value, str),
    "true/false": lambda value: isinstance(value, bool),
    "count": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "any": lambda value: value is not None,
    "null": lambda value: value is None,
}


class Seen:
    """Holds documents against tables; notes which keys were there, and what is wrong."""

    def __init__(self) -> None:
        self.keys: dict[str, set[str]] = {}
        self.kinds: set[str] = set()  # of fixed keys
        self.faults: list[str] = []

    def table(self, name: str, value, at: str) -> None:
        known = TABLES[name]
        if not isinstance(value, dict):
            self.faults.append(f"{at}: no mapping")
            return
        self.keys.setdefault(name, set()).update(value)
        self.faults += [f"{at}.{key}: not in the table {name}" for key in value.keys() - known.keys()]
        for key, holds in known.items():
            kind, _, optional = holds.partition(", optional")
            if key in value:
                self.value(kind, value[key], f"{at}.{key}")
            elif not holds.endswith(", optional"):
                self.faults.append(f"{at}.{key}: missing, and not optional in {name}")
            assert optional == ""

    def value(self, kind: str, value, at: str) -> None:
        """Check a value against what the table says, of which one alternative must hold."""
        choices = kind.split(" or ")
        fitting = [choice for choice in choices if self.shallow(choice, value)]
        if not fitting:
            self.faults.append(f"{at}: {str(value)[:60]!r} is not: {kind}")
            return
        self.deep(fitting[0], value, at)

    @staticmethod
    def shallow(kind: str, value) -> bool:
        if kind.startswith("list of "):
            return isinstance(value, list)
        if kind.startswith(("map to ", "[", "{")):
            return isinstance(value, dict)
        return SCALARS[kind](value)

    def deep(self, kind: str, value, at: str) -> None:
        if kind.startswith("list of "):
            for i, item in enumerate(value):
                self.value(kind.removeprefix("list of "), item, f"{at}[{i}]")
        elif kind == "map to any":
            return  # keys and values are free
        elif kind.startswith("map to "):
            for name, item in value.items():
                self.value(kind.removeprefix("map to "), item, f"{at}.{name}")
        elif link := LINK.fullmatch(kind):
            self.table(link[1], value, at)
        elif keys := KEYS.fullmatch(kind):
            self.kinds.add(kind)
            words = set(keys[1].split(", "))
            needed, known = {w for w in words if w[-1] != "?"}, {w.removesuffix("?") for w in words}
            if not needed <= value.keys() <= known:
                self.faults.append(f"{at}: keys {sorted(value)} are not those of {kind}")


def test_every_row_says_what_it_holds():
    for name, table in TABLES.items():
        for key, holds in table.items():
            for part in holds.removesuffix(", optional").split(" or "):
                kind = re.sub(r"^(?:(?:list of|map to) )+", "", part)
                link = LINK.fullmatch(kind)
                told = kind in SCALARS or KEYS.fullmatch(kind) or (link and link[1] in TABLES)
                assert told, f"{name}.{key}: {holds}"


def test_every_verb_with_json_has_a_table():
    cli = (ROOT / "docs" / "cli.md").read_text()
    sections = re.findall(r"^##+ (?:ficco|python -m) (.+?)\n(.*?)```\n", cli, re.MULTILINE | re.DOTALL)
    verbs = {name for name, text in sections if re.search(r"^│.* --json STR", text, re.MULTILINE)}
    assert verbs > {"compare", "hw_validate run"}
    groups = {title.split()[0] for title in TABLES if " " in title} - {"hw_validate"}
    missing = {verb for verb in verbs - TABLES.keys() if verb not in groups}
    assert missing == set(ELSEWHERE)
    for verb, told in ELSEWHERE.items():
        assert told in PAGE, verb


def test_links_lead_somewhere():
    anchors = {re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in TABLES}
    for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE):
        assert anchor.removesuffix("-1") in anchors, anchor
    for target in re.findall(r"\]\((?!#)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def documents(capsys, folder: Path) -> Iterator[tuple[str, Any]]:
    """One file or result after another, with the heading of its table."""

    def printed(*arguments: str):
        return json.loads(run(capsys, *arguments, *OUT))

    def measured(*arguments: str):
        assert hw_main([*arguments, *OUT]) == 0
        return json.loads(capsys.readouterr().out)

    yield from machines(folder)
    yield from workloads(printed, capsys, folder)
    yield from plans(printed, capsys, folder)
    yield from records()
    yield from simulated(printed)
    yield from rules(printed, folder)
    yield from calibrated(printed, folder)
    yield from hardware(measured, capsys, folder)


def machines(folder):
    """Those of the package, the example, and one by hand with what these leave out."""
    for path in sorted((ROOT / "topologies").glob("*.yaml")):
        yield "Machine", io.read_document(path)
    for name in ("mi300x", "h200", "v100"):
        yield "Gpu", io.read_document(ROOT / "topologies" / "gpus" / f"{name}.yaml")
    document = io.read_document(ROOT / "docs" / "examples" / "mi325x_8.yaml")
    link = {"src": 0, "dst": 1, "bandwidth_bytes_per_s": 64e9, "latency_s": 1e-6}
    document["topology"] = {"family": "links", "links": [link | {"both_ways": False, "width": 1}]}
    timed = {"m": 64, "n": 64, "k": 64, "dtype": "bf16", "time_s": 5e-6}
    document["gpu"]["profile"]["gemm"]["measured"] = [timed]
    document["sources"] = {"topology": "estimated: made up"}
    file = folder / "machine.json"
    file.write_text(json.dumps(document))
    machine = load_machine(str(file))
    assert len(machine.links) == len(machine.profile.gemm.measured) == 1
    yield "Machine", document


def workloads(printed, capsys, folder):
    yield "WorkloadSet", io.read_document(ROOT / "ficco_sim" / "data" / "workloads.yaml")
    file = folder / "set.json"
    make = ("scenarios", "make", "random", "--count", "2", "--out", str(file))
    yield "scenarios show", printed(*make)
    yield "scenarios show", printed("scenarios", "show", str(file))
    yield "WorkloadSet", json.loads(file.read_text())
    whole = {"m": 512, "n": 512, "k": 512}
    told = {"dtype": "bf16", "model": "a", "layer": "b", "source": "c"}
    document = {"format_version": 1, "operators": [
        {"name": "tensor", "whole": whole, "tp": 8} | told,
        {"name": "experts", "whole": whole, "ep": 8, "top_k": 2, "skew": 0.5},
    ]}  # fmt: skip
    file.write_text(json.dumps(document))
    assert len(load_scenarios(file).workloads) == 2
    yield "WorkloadSet", document
    yield "scenarios show", printed("scenarios", "show", str(file))
    yield "Rule", io.read_document(ROOT / "ficco_sim" / "data" / "rules" / "published.yaml")
    page = (ROOT / "docs" / "rules.md").read_text()
    rule = io.parse_yaml(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1], "rules.md")
    rule["otherwise"]["engine"] = "core"
    file.write_text(json.dumps(rule))
    assert find_rule(str(file)).name == rule["name"]
    yield "Rule", rule


def plans(printed, capsys, folder):
    plan, spans = folder / "plan.json", folder / "spans.json"
    for schedule in ("serial", "uniform-fused-2d"):
        asked = (schedule, "--gemm", "64,8,16", "--num-gpus", "4")
        yield "Plan", printed("plan", *asked)
        run(capsys, "plan", *asked, "--json", str(plan))
        yield "check", printed("check", str(plan))
        on = ("--plan", str(plan), "--machine", "mi210_4", "--spans", str(spans))
        told = printed("simulate", *on)
        yield "simulate", {key: told.pop(key) for key in TABLES["simulate"]}
        yield "Result", told
        yield "Trace", json.loads(spans.read_text())


def records():
    with gzip.open(RUNS / "h200_x2" / "own.jsonl.gz", "rt") as file:
        for line in itertools.islice(file, 200):
            document = json.loads(line)
            yield f"Record{document['record'].capitalize()}", document


def simulated(printed):
    yield "compare", printed("compare", *SMALL)
    yield "compare", printed("compare", "--gemm", "8192,1024,8192", "--machine", "mi300x_8")
    for what in ("schedules", "workloads", "machines", "rules"):
        yield f"list {what}", printed("list", what, "--machine", "mi210_4")
    for asked in (("--gemm", "64,64,64"), ("--copy", "1KiB"), ("--local-copy", "1KiB")):
        yield "cost", printed("cost", *asked)
    for size in ("1MiB", "0"):
        asked = ("all_gather", "--machine", "mi210_4", "--bytes", size)
        yield "collective", printed("collective", *asked)
    for name in ("a40_8_pairs", "ring_8_oneway"):
        yield "topology show", printed("topology", "show", name)
    make = ("--num-gpus", "4", "--bandwidth", "46.5GB", "--latency", "0.5us")
    yield "topology show", printed("topology", "make", "ring", *make)
    (case,) = (ROOT / "tests" / "cases").glob("B04_*")
    yield "topology show", printed("topology", "import", str(case))


def rules(printed, folder):
    sizes = [f"{m},512,{k}" for m in (512, 4096, 32768) for k in (256, 2048, 8192)]
    asked = [word for size in sizes for word in ("--gemm", size)]
    asked += ["--machine", "mi210_4", "--machine", "a100_4"]
    asked += ["--num-chunks", "2", "--compute-queues", "1"]
    for name, more in (("full", ()), ("short", ("--makespans-only",))):
        table = folder / f"{name}.csv"
        yield "sweep", printed("sweep", *asked, *more, "--out", str(table))
        with table.open() as file:
            for row in csv.DictReader(file):
                yield "SweepRow", {key: typed(key, cell) for key, cell in row.items()}
    lacking = ("--dtype", "fp16", "--machine", str(ROOT / "docs" / "examples" / "mi325x_8.yaml"))
    part = ("--gemm", "64,8,16", *lacking, "--machine", "mi210_4", "--out", str(folder / "part.csv"))
    yield "sweep", printed("sweep", *part)
    table = str(folder / "full.csv")
    tau = ("--rule", "published", "--parameter", "tau_s=1us:1ms:5")
    user = folder / "mine.py"
    user.write_text("def mine(f):\n    return 1 / 0\n")
    both = ("--rule", "published", "--rule", f"{user}:mine")
    yield "heuristic evaluate", printed("heuristic", "evaluate", table, "--draws", "10", *both)
    yield "heuristic tune", printed("heuristic", "tune", table, *tau, "--folds", "2")
    yield "heuristic portability", printed("heuristic", "portability", table, *tau)
    yield "heuristic pick", printed("heuristic", "pick", *SMALL, *both)


def typed(key: str, cell: str):
    """A cell of the table as its column says."""
    if not cell:
        return None
    kind = TABLES["SweepRow"][key].removesuffix(" or null")
    return {"count": int, "number": float, "text": str}[kind](cell)


def calibrated(printed, folder):
    log = ROOT / "docs" / "examples" / "rocm_bandwidth_synthetic.txt"
    out = ("--out", str(folder / "mine.yaml"))
    yield "calibrate", printed("calibrate", str(log), "--machine", "mi210_4", *out)
    gemms = (ROOT / "docs" / "samples" / "gemms_synthetic.csv").read_text().splitlines()
    gemms[3] = re.sub(r"[\d.]+$", lambda time_us: f"{2.5 * float(time_us[0]):.1f}", gemms[3])
    slow = folder / "slow.csv"
    slow.write_text("\n".join(gemms) + "\n")
    found = printed("calibrate", str(slow), "--machine", "mi300x_8", *out)
    assert len(found["bad_kernels"]) == 1
    yield "calibrate", found
    asked = ("--machine", "h200_8", "--submission", "graph", "--copy-queues", "7")
    yield "validate", printed("validate", str(RUNS / "h200_x2" / "eager.jsonl.gz"), *asked)


def hardware(measured, capsys, folder):
    """On the CPU; what needs a gpu is taken from the committed runs."""
    yield "hw_validate doctor", measured("doctor", "--device", "cpu")
    yield "hw_validate doctor", json.loads((RUNS / "h200" / "doctor.json").read_text())
    size = ("--gemm", "64,8,16")
    plan = ("--num-gpus", "2", "--schedule", "serial", "--map", "0=dev0,1=host")
    asked = ("run", *size, *plan, "--device", "cpu", "--rounds", "2")
    runs, dry = folder / "records.jsonl", folder / "dry.json"
    yield "hw_validate run", measured(*asked, "--out", str(runs))
    yield "DryRun", measured(*asked, "--dry-run", "--rehearse")
    document = measured(*asked, "--dry-run")
    yield "DryRun", document
    dry.write_text(json.dumps(document))
    yield "hw_validate allowance", measured("allowance", str(dry))
    for path in (runs, RUNS / "h200" / "host-repeated.jsonl.gz"):
        yield "hw_validate summary", measured("summary", str(path))
    first, second = (RUNS / name / "eager.jsonl.gz" for name in ("h200", "h200_x2"))
    yield "hw_validate beside", measured("beside", str(first), "--against", str(second))
    here, there = folder / "measured.json", folder / "simulated.json"
    (key,) = [m.key for m in read_records(runs).measurements]
    assert hw_main(["summary", str(runs), "--spans", str(here), "--key", key]) == 0
    capsys.readouterr()
    run(capsys, "simulate", "serial", *size, "--machine", "h200_2", "--spans", str(there))
    yield "hw_validate compare", measured("compare", str(there), str(here))
    yield "Trace", json.loads(here.read_text())


def test_tables_have_the_keys_and_kinds_of_files_and_results(capsys, tmp_path):
    seen = Seen()
    for name, document in documents(capsys, tmp_path):
        for item in document if isinstance(document, list) else [document]:
            seen.table(name, item, name)
    assert sorted(set(seen.faults)) == []
    unseen = {name: sorted(table.keys() - seen.keys.get(name, set())) for name, table in TABLES.items()}
    assert {name: keys for name, keys in unseen.items() if keys} == {}
    # NCCL needs several gpus
    seen.kinds |= {f"{{{', '.join(f.name for f in fields(CollectiveRow))}}}"}
    fixed = {
        kind for table in TABLES.values() for holds in table.values() for kind in FIXED.findall(holds)
    }
    assert fixed - seen.kinds == set()


@pytest.mark.parametrize(("document", "fault"), [
    ({"rows": 1}, "a.file: missing"),
    ({"file": "x", "sha256": "y", "colour": "red"}, "a.colour: not in the table FitSource"),
    ({"file": 3, "sha256": "y"}, "a.file: '3' is not: text"),
])  # fmt: skip
def test_a_document_unlike_its_table_is_found(document, fault):
    seen = Seen()
    seen.table("FitSource", document, "a")
    assert any(fault in found for found in seen.faults)
