"""Layer: files. Measured records: what is written reads back, whatever happens while it is written."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim import io, records
from ficco_sim.errors import FiccoError, FileError
from ficco_sim.records import (
    UNCHECKED,
    Measurement,
    Sensors,
    Session,
    SpanSeries,
    measurement_key,
    merge_records,
    read_records,
    scan_records,
)
from hw_validate import recorder as recorder_module
from hw_validate.recorder import Recorder, part_path

SESSION = Session(
    session="first",
    started="2025-01-31T12:00:00Z",
    regime="burst",
    init="randn",
    command="python -m hw_validate",
    environment={"gpu": "H200", "driver": "570.1", "date": "2025-01-31"},
)
IDLE = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)


def measured(number, sequence=None, **changes):
    params = {"m": number, "dtype": "bf16"}
    values = {
        "kind": "gemm",
        "key": measurement_key("gemm", params),
        "params": params,
        "samples_s": (1e-5, 1.5e-5),
        "before": IDLE,
        "after": IDLE,
        "sequence": number if sequence is None else sequence,
    }
    return Measurement(**(values | changes))


def line_of(record):
    return io.dump_json(record, indent=None)


def file_of(tmp_path, *lines, name="some.jsonl"):
    path = tmp_path / name
    path.write_text("".join(line if isinstance(line, str) else line_of(line) for line in lines))
    return path


def refusal(call, *args, **kwargs):
    with pytest.raises(FileError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def written(path, *groups, session=SESSION, resume=False):
    with Recorder.open(path, session, resume=resume) as recorder:
        for group in groups:
            recorder.write_group(group)
    return part_path(path)


def keys_of(measurements):
    return [m.key for m in measurements]


numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | numbers | texts
sensors = st.builds(
    Sensors,
    sm_clock_hz=st.none() | st.floats(0, 1e10),
    power_w=st.none() | st.floats(0, 2000),
    temperature_c=st.none() | st.floats(-50, 150),
)


@st.composite
def measurements(draw):
    kind = draw(st.sampled_from(["gemm", "copy", "plan", "launch"]))
    params = draw(st.dictionaries(texts, scalars, max_size=4))
    ids = draw(st.lists(texts, max_size=3))
    starts = draw(st.lists(st.integers(0, 2**60), min_size=len(ids), max_size=len(ids)))
    return Measurement(
        kind=kind,
        key=measurement_key(kind, params),
        params=params,
        samples_s=tuple(draw(st.lists(st.floats(1e-12, 1e3), min_size=1, max_size=4))),
        series=draw(
            st.dictionaries(texts.map(lambda t: f"{t}_s"), st.lists(numbers).map(tuple), max_size=2)
        ),
        spans=SpanSeries(task_ids=tuple(ids), start_ns=tuple(starts), end_ns=tuple(starts)),
        before=draw(sensors),
        after=draw(sensors),
        labels=tuple(draw(st.lists(texts, max_size=2))),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
        unusable=tuple(draw(st.lists(texts, max_size=1))),
        sequence=draw(st.integers(0, 10**6)),
    )


class TestSchema:
    @examples(100)
    @given(measurement=measurements())
    def test_round_trip_is_exact(self, tmp_path_factory, measurement):
        path = file_of(tmp_path_factory.mktemp("r"), SESSION, measurement)
        read = read_records(path)
        assert read.sessions == (SESSION,)
        assert read.measurements == (replace(measurement, session="first"),)
        (back,) = read.measurements
        assert {k: type(v) for k, v in back.params.items()} == {
            k: type(v) for k, v in measurement.params.items()
        }

    def test_keys_are_those_of_settings(self):
        key = measurement_key("gemm", {"m": 1, "n": 2.0, "where": None, "flag": True})
        assert key == measurement_key("gemm", {"flag": True, "where": None, "n": 2, "m": 1.0})
        assert len(key) == 16
        others = [
            measurement_key("gemms", {"m": 1, "n": 2, "where": None, "flag": True}),
            measurement_key("gemm", {"m": 2, "n": 1, "where": None, "flag": True}),
            measurement_key("gemm", {"m": 1, "n": 2, "where": None, "flag": 1}),
            measurement_key("gemm", {"m": 1, "n": 2, "where": "None", "flag": True}),
        ]
        assert len({key, *others}) == 5
        assert "not a finite number" in refusal(measurement_key, "gemm", {"m": float("inf")})

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"key": "0" * 16}, "key: '0000000000000000' is not that of kind and params"),
            ({"samples_s": ()}, "samples_s: empty, and unusable does not say why"),
            ({"samples_s": (1.0, 0.0)}, "samples_s: 0.0 must be above 0"),
            ({"samples_s": (float("nan"),)}, "samples_s: nan is not a finite number"),
            ({"series": {"gemm": (1.0,)}}, "series: the name 'gemm' must end with a unit"),
            ({"series": {"gemm_s": (float("inf"),)}}, "series.gemm_s: inf is not a finite number"),
            ({"sequence": -1}, "sequence: -1 must not be negative"),
        ],
    )
    def test_impossible_measurements_are_refused(self, changes, message):
        assert refusal(measured, 1, **changes).startswith(message)

    def test_spans_and_sensors_and_sessions_are_checked(self):
        spans = {"task_ids": ("a", "b"), "start_ns": (0, 5)}
        assert "lengths (2, 2, 1) must be equal" in refusal(SpanSeries, **spans, end_ns=(1,))
        assert "end_ns: 4 of task 'b' is before its start 5" in refusal(
            SpanSeries, **spans, end_ns=(1, 4)
        )
        assert "power_w: -1 must not be negative" in refusal(replace, IDLE, power_w=-1)
        assert replace(IDLE, temperature_c=-1.0).temperature_c == -1.0
        for started in ("yesterday", "2025-01-31", "2025-01-31T12:00:00", "2025-01-31T12:00:00+01:00"):
            assert f"started: {started!r} must be" in refusal(replace, SESSION, started=started)
        assert "session: must not be empty" in refusal(replace, SESSION, session="")

    def test_no_number_comes_from_an_unusable_measurement(self, tmp_path):
        good, bad = measured(1), measured(2, samples_s=(), unusable=("copied through the host",))
        read = read_records(file_of(tmp_path, SESSION, good, bad))
        assert read.usable == (replace(good, session="first"),)
        assert good.median_s == pytest.approx(1.25e-5)
        assert "not usable: copied through the host" in refusal(getattr, bad, "median_s")


class TestReading:
    def test_gzip_reads_the_same(self, tmp_path):
        plain = file_of(tmp_path, SESSION, measured(1))
        packed = tmp_path / "some.jsonl.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        assert read_records(packed) == read_records(plain)
        packed.write_bytes(packed.read_bytes()[:-9])
        assert "not a whole gzip file" in refusal(read_records, packed)
        packed.write_bytes(plain.read_bytes())
        assert "not a whole gzip file" in refusal(read_records, packed)

    def test_sizes_are_bounded_after_decompression(self, tmp_path, monkeypatch):
        path = tmp_path / "bomb.jsonl.gz"
        path.write_bytes(gzip.compress(b" " * (80 * 2**20), compresslevel=1))
        assert "a line of more than 67,108,864 bytes" in refusal(read_records, path)
        monkeypatch.setattr(records, "MAX_BYTES", 3000)
        lines = [line_of(measured(number)) for number in range(20)]
        path.write_bytes(gzip.compress("".join([line_of(SESSION), *lines]).encode()))
        assert path.stat().st_size < 3000
        assert "more than 3,000 bytes are not read" in refusal(read_records, path)

    def test_errors_name_file_line_key_value_and_rule(self, tmp_path):
        good = json.loads(line_of(measured(1)))
        for change, message in {
            "unknown": ({"more": 1}, "more: unknown key"),
            "kind": ({"kind": "gem"}, "kind: 'gem': Input should be 'gemm'"),
            "record": ({"record": "other"}, "record: must be 'session' or 'measurement'"),
            "nan": ({"samples_s": [float("nan")]}, "samples_s[0]: nan is not a finite number"),
            "text": ({"sequence": "1"}, "sequence: '1': Input should be a valid integer"),
            "truth": ({"sequence": True}, "sequence: True: Input should be a valid integer"),
            "zero": ({"samples_s": [0]}, "samples_s: 0.0 must be above 0"),
            "deep": ({"before": {**good["before"], "power_w": -1}}, "before: power_w: -1.0 must not"),
        }.values():
            path = file_of(
                tmp_path, SESSION, measured(0), json.dumps(good | change) + "\n", measured(3)
            )
            assert refusal(read_records, path).startswith(f"{path}: line 3: {message}")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("\n", "not JSON"),
            ("{\n", "not JSON"),
            ("[]\n", "record: must be"),
            ("12\n", "record: must be"),
            ('{"a": 1, "a": 2}\n', "not JSON: the key 'a' occurs twice"),
            ("[" * 100_000 + "\n", "nested too deeply"),
            ('{"record": ["session"]}\n', "record: must be"),
            ('{"record": "measurement"}\n', "kind: missing"),
            (line_of(SESSION).replace('"format_version": 1, ', ""), "format_version: missing"),
            (
                line_of(SESSION).replace('"format_version": 1', '"format_version": 2'),
                "format_version: 2",
            ),
            (line_of(SESSION), "session: 'first' occurs twice"),
            (line_of(measured(0)), "session, key, sequence: 'first'"),
            (line_of(measured(1, session="other")), "session: 'other' must be 'first'"),
        ],
    )
    def test_bad_lines_are_refused_by_line(self, tmp_path, line, message):
        path = file_of(tmp_path, SESSION, measured(0), line, measured(2))
        assert f"{path}: line 3: {message}" in refusal(read_records, path)
        assert f"{path}: line 3: {message}" in refusal(read_records, path, allow_torn=True)

    def test_files_without_measurements_are_refused(self, tmp_path):
        path = file_of(tmp_path, SESSION)
        assert refusal(read_records, path) == f"{path}: no measurement in it"
        assert read_records(path, allow_empty=True).sessions == (SESSION,)
        empty = file_of(tmp_path, name="empty.jsonl")
        assert "the first line must be a session" in refusal(read_records, empty, allow_empty=True)
        headless = file_of(tmp_path, measured(1), name="headless.jsonl")
        assert f"{headless}: line 1: the first line must be" in refusal(read_records, headless)
        assert refusal(read_records, tmp_path / "none") == f"{tmp_path}/none: no such file"
        assert "is a folder" in refusal(read_records, tmp_path)

    def test_torn_last_lines_are_refused_or_left_out(self, tmp_path):
        torn = line_of(measured(2))[:-20]
        path = file_of(tmp_path, SESSION, measured(1), torn)
        message = refusal(read_records, path)
        assert message.startswith(f"{path}: line 3: not JSON")
        assert "cut off while it was written" in message
        assert keys_of(read_records(path, allow_torn=True).measurements) == [measured(1).key]
        # a letter cut in two
        cut = line_of(measured(1)).encode() + b'{"record": "\xc3'
        path.write_bytes(line_of(SESSION).encode() + cut)
        assert "line 3: not UTF-8 text (byte 12): the file was cut off" in refusal(read_records, path)
        assert len(read_records(path, allow_torn=True).measurements) == 1
        # only the end of the line is missing
        whole = file_of(tmp_path, SESSION, line_of(measured(1)).rstrip("\n"), name="whole.jsonl")
        assert len(read_records(whole).measurements) == 1

    def test_incomplete_groups_are_refused_or_left_out(self, tmp_path):
        first, second = measured(2, group_left=1), measured(3)
        path = file_of(tmp_path, SESSION, measured(1), first)
        assert f"{path}: line 3: 1 more of its group must follow" in refusal(read_records, path)
        assert keys_of(read_records(path, allow_torn=True).measurements) == [measured(1).key]
        assert len(read_records(file_of(tmp_path, SESSION, first, second)).measurements) == 2
        gap = file_of(tmp_path, SESSION, measured(1, group_left=2), second)
        assert f"{gap}: line 3: group_left: 0 must be 1" in refusal(read_records, gap)
        early = file_of(tmp_path, SESSION, first, replace(SESSION, session="later"))
        assert f"{early}: line 3: a session starts before" in refusal(read_records, early)

    def test_a_resumed_run_has_the_same_conditions(self, tmp_path):
        later = replace(SESSION, session="later", started="2025-02-01T00:00:00+00:00", command="again")
        path = file_of(tmp_path, SESSION, measured(1), later, measured(1))
        assert [m.session for m in read_records(path).measurements] == ["first", "later"]
        hot = replace(later, regime="sustained")
        path = file_of(tmp_path, SESSION, measured(1), hot, measured(2))
        assert refusal(read_records, path).startswith(
            f"{path}: line 1, {path}: line 3: regime: 'burst' and 'sustained': "
        )

    @examples(300)
    @given(data=st.data())
    def test_any_damage_gives_our_error_or_records(self, tmp_path_factory, data):
        whole = "".join(
            line_of(r) for r in (SESSION, measured(1, series={"copy_s": (1.0,)}), measured(2))
        )
        raw = bytearray(whole.encode())
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(raw)))
            end = data.draw(st.integers(start, min(len(raw), start + 8)))
            raw[start:end] = data.draw(
                st.binary(max_size=4)
                | st.sampled_from(
                    [b"null", b"1e999", b"-1", b"[", b'"', b"\n", b"\\ud800", b"9" * 5000]
                )
            )
        path = tmp_path_factory.mktemp("fuzz") / "some.jsonl"
        path.write_bytes(raw)
        try:
            read_records(path, allow_torn=data.draw(st.booleans()))
        except FiccoError as error:
            assert str(error).startswith(str(path))  # noqa: PT017


class TestMerging:
    @pytest.mark.parametrize(
        ("change", "key", "values"),
        [
            ({"regime": "sustained"}, "regime", "'burst' and 'sustained'"),
            ({"init": "zeros"}, "init", "'randn' and 'zeros'"),
            (
                {"environment": {**SESSION.environment, "gpu": "H100"}},
                "environment.gpu",
                "'H200' and 'H100'",
            ),
            ({"environment": {"gpu": "H200"}}, "environment.driver", "'570.1' and absent"),
            ({"environment": {**SESSION.environment, "x": ""}}, "environment.x", "absent and ''"),
        ],
    )
    def test_unequal_conditions_are_refused(self, tmp_path, change, key, values):
        other = replace(SESSION, session="other", **change)
        a = file_of(tmp_path, SESSION, measured(1), name="a.jsonl")
        b = file_of(tmp_path, other, measured(2), name="b.jsonl")
        message = refusal(merge_records, [(path, read_records(path)) for path in (a, b)])
        assert message.startswith(f"{a}, {b}: {key}: {values}: ")
        assert len(message.splitlines()) == 1
        out = tmp_path / "out.jsonl"
        part = written(out, [measured(1)])
        before = part.read_bytes()
        message = refusal(Recorder.open, out, other, resume=True)
        assert message.startswith(f"{part}, this run: {key}: {values}: ")
        assert part.read_bytes() == before

    def test_all_keys_are_checked_but_those_listed(self, tmp_path):
        environment = {f"key{i:02}": "a" for i in range(12)} | dict.fromkeys(UNCHECKED, "a")
        one = replace(SESSION, environment=environment)
        two = replace(one, session="two", environment=dict.fromkeys(environment, "b"))
        files = [
            (path, read_records(path))
            for path in (
                file_of(tmp_path, one, measured(1), name="a.jsonl"),
                file_of(tmp_path, two, measured(2), name="b.jsonl"),
            )
        ]
        lines = refusal(merge_records, files).splitlines()
        assert [line.split(": ")[1] for line in lines[:8]] == [f"environment.key0{i}" for i in range(8)]
        assert lines[8].endswith("and 4 more")
        same = replace(two, environment=environment | dict.fromkeys(UNCHECKED, "b"))
        path = file_of(tmp_path, same, measured(2), measured(1, 5), name="c.jsonl")
        merged = merge_records([files[0], (path, read_records(path))])
        assert merged.sessions == (one, same)
        assert [(m.session, m.params["m"]) for m in merged.measurements] == [
            ("first", 1),
            ("two", 2),
            ("two", 1),
        ]

    def test_nothing_is_counted_twice(self, tmp_path):
        a = file_of(tmp_path, SESSION, measured(1), name="a.jsonl")
        b = file_of(tmp_path, SESSION, measured(2), measured(1), name="b.jsonl")
        files = [(path, read_records(path)) for path in (a, b)]
        assert refusal(merge_records, files).startswith(f"{a}, {b}: session, key, sequence: 'first', ")
        c = file_of(tmp_path, replace(SESSION, command="other"), measured(3), name="c.jsonl")
        message = refusal(merge_records, [files[0], (c, read_records(c))])
        assert f"{a}, {c}: session: 'first' names two different sessions" in message
        assert "no files" in refusal(merge_records, [])


class TestRecorder:
    def test_a_run_from_start_to_end(self, tmp_path):
        out = tmp_path / "out.jsonl"
        with Recorder.open(out, SESSION) as recorder:
            assert recorder.next_sequence == 0
            recorder.write_group([measured(0), measured(1)])
            recorder.write_group([measured(0, 2)])
            assert recorder.next_sequence == 3
            assert recorder.done == {measured(0).key, measured(1).key}
            assert recorder.done_keys(2) == {measured(0).key}
            assert not out.exists()
            assert recorder.finish() == out
        assert not part_path(out).exists()
        assert [m.sequence for m in read_records(out).measurements] == [0, 1, 2]
        assert "is closed" in refusal(recorder.write_group, [measured(3)])

    def test_nothing_that_was_there_is_lost(self, tmp_path):
        out = tmp_path / "out.jsonl"
        part = written(out, [measured(1)])
        before = part.read_bytes()
        assert "unfinished run; resume it, or choose another name" in refusal(
            Recorder.open, out, SESSION
        )
        out.write_text("precious")
        for resume in (False, True):
            assert "choose another name" in refusal(Recorder.open, out, SESSION, resume=resume)
        assert (out.read_text(), part.read_bytes()) == ("precious", before)
        out.unlink()
        with Recorder.open(out, SESSION, resume=True) as recorder:
            out.write_text("precious")
            assert "has appeared meanwhile" in refusal(recorder.finish)
        assert (out.read_text(), part.read_bytes()) == ("precious", before)

    @pytest.mark.parametrize("text", ["notes", "notes\n", "{}", '{"record": "other'])
    def test_a_part_that_is_no_records_is_left_alone(self, tmp_path, text):
        part = tmp_path / "out.jsonl.part"
        part.write_text(text)
        assert str(part) in refusal(Recorder.open, tmp_path / "out.jsonl", SESSION, resume=True)
        assert part.read_text() == text

    def test_places_that_cannot_be_written_are_refused(self, tmp_path):
        assert "no folder" in refusal(Recorder.open, tmp_path / "none" / "out.jsonl", SESSION)
        assert "uncompressed" in refusal(Recorder.open, tmp_path / "out.jsonl.gz", SESSION)
        (tmp_path / "out.jsonl.part").mkdir()
        assert str(tmp_path) in refusal(Recorder.open, tmp_path / "out.jsonl", SESSION, resume=True)

    def test_one_writer_at_a_time(self, tmp_path):
        out = tmp_path / "out.jsonl"
        with Recorder.open(out, SESSION) as recorder:
            recorder.write_group([measured(1)])
            assert "another process writes it" in refusal(Recorder.open, out, SESSION, resume=True)
        Recorder.open(out, SESSION, resume=True).close()

    def test_what_cannot_be_read_back_is_not_written(self, tmp_path):
        out = tmp_path / "out.jsonl"
        odd = replace(SESSION, environment={"PATH": "\udcff"})
        assert str(out) in refusal(Recorder.open, out, odd)
        assert not list(tmp_path.iterdir())
        with Recorder.open(out, SESSION) as recorder:
            assert str(out) in refusal(
                recorder.write_group, [measured(1), measured(2, labels=("\udcff",))]
            )
            recorder.write_group([measured(1)])
            assert "occurs twice" in refusal(recorder.write_group, [measured(2), measured(1)])
            assert "occurs twice" in refusal(recorder.write_group, [measured(2), measured(2)])
            recorder.finish()
        assert len(read_records(out).measurements) == 1

    def test_a_run_without_measurements_is_not_finished(self, tmp_path):
        out = tmp_path / "out.jsonl"
        with Recorder.open(out, SESSION) as recorder:
            assert "nothing was measured" in refusal(recorder.finish)
        assert part_path(out).exists()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
    def test_a_write_that_breaks_off_leaves_no_trace(self, tmp_path, monkeypatch, error):
        out = tmp_path / "out.jsonl"
        with Recorder.open(out, SESSION) as recorder:
            recorder.write_group([measured(1)])
            real, calls = os.write, []

            def write(handle, data):
                calls.append(1)
                if len(calls) == 3:
                    raise error
                return real(handle, bytes(data[:100]))

            monkeypatch.setattr(recorder_module.os, "write", write)
            with pytest.raises((KeyboardInterrupt, FileError)):
                recorder.write_group([measured(2), measured(3)])
            monkeypatch.undo()
            assert keys_of(read_records(part_path(out)).measurements) == [measured(1).key]
            recorder.write_group([measured(2), measured(3)])
            recorder.finish()
        assert [m.sequence for m in read_records(out).measurements] == [1, 2, 3]

    def test_a_killed_process_leaves_what_it_had_written(self, tmp_path):
        out = tmp_path / "out.jsonl"
        code = (
            "import os, signal, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
            "from test_records import SESSION, measured, Recorder\n"
            "recorder = Recorder.open(Path(sys.argv[1]), SESSION)\n"
            "recorder.write_group([measured(1), measured(2)])\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        tests = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, "-c", code, out, tests], cwd=tests.parent, check=False, capture_output=True
        )
        assert done.returncode == -9, done.stderr
        with Recorder.open(out, SESSION, resume=True) as recorder:
            assert recorder.done == {measured(1).key, measured(2).key}
            assert recorder.next_sequence == 3

    def test_resuming_after_a_kill_at_any_byte_loses_and_doubles_nothing(self, tmp_path, monkeypatch):
        # what a killed process had written stays, on disk or not
        monkeypatch.setattr(recorder_module.os, "fsync", lambda _: None)
        # setting up the same check thousands of times takes longest
        groups = [[measured(0)], [measured(1), measured(2)]]
        out = tmp_path / "out.jsonl"
        part = written(out, *groups)
        whole = part.read_bytes()
        ends = [len(line_of(SESSION))]
        lines = whole.splitlines(keepends=True)[1:]
        for group in groups:
            ends.append(ends[-1] + sum(len(lines.pop(0)) for _ in group))
        later = replace(SESSION, session="later")
        for cut in range(len(whole) + 1):
            part.write_bytes(whole[:cut])
            # the end of a line says nothing more
            survived = sum(end - 1 <= cut for end in ends[1:])
            with Recorder.open(out, later, resume=True) as recorder:
                had = [m for group in groups[:survived] for m in group]
                assert recorder.done == frozenset(keys_of(had))
                todo = [g for g in groups if not {m.key for m in g} <= recorder.done]
                for group in todo:
                    recorder.write_group(group)
                recorder.finish()
            read = read_records(out)
            assert keys_of(read.measurements) == keys_of(m for group in groups for m in group)
            assert [m.session for m in read.measurements].count("first") == len(had)
            named = [session.session for session in read.sessions]
            expected = ["first"] if cut >= ends[0] - 1 else []
            assert named == expected + ["later"] * (len(had) < 3)
            out.unlink()

    def test_a_session_is_announced_once(self, tmp_path):
        out = tmp_path / "out.jsonl"
        later, last = (replace(SESSION, session=name) for name in ("later", "last"))
        written(out, [measured(1)])
        written(out, resume=True, session=later)  # measures nothing
        written(out, [measured(2)], resume=True)
        written(out, [measured(3)], resume=True, session=later)
        written(out, [measured(4)], resume=True, session=last)
        read = read_records(part_path(out))
        assert [s.session for s in read.sessions] == ["first", "later", "last"]
        assert [m.session for m in read.measurements] == ["first", "first", "later", "last"]
        assert "names an earlier session" in refusal(Recorder.open, out, later, resume=True)

    def test_scanning_tells_where_whole_records_end(self, tmp_path):
        path = file_of(tmp_path, SESSION, measured(1), measured(2, group_left=1))
        found, size = scan_records(path, allow_torn=True)
        assert size == len(line_of(SESSION) + line_of(measured(1)))
        assert len(found.measurements) == 1
