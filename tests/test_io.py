"""Layer: files. Strict reading, errors that name file and key, and writing whole or not at all."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim import io
from ficco_sim.errors import FiccoError, FileError


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012
    rate_per_s: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012
    count: int
    parts: tuple[Inner, ...] = ()
    table: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012
    part: str | Inner


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


def message_of(call, *args):
    """What a call is refused with; any error but our own comes through."""
    try:
        call(*args)
    except FiccoError as error:
        return str(error)
    return None


def load_text(tmp_path, text, suffix=".yaml", cls=Outer):
    path = tmp_path / f"some{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return io.load(path, cls)


def refusal(tmp_path, text, suffix=".yaml"):
    with pytest.raises(FileError) as caught:
        load_text(tmp_path, text, suffix)
    message = str(caught.value)
    assert all(line.startswith(f"{tmp_path}/some{suffix}: ") for line in message.splitlines())
    return message.replace(f"{tmp_path}/some{suffix}: ", "")


class TestReading:
    @pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ".txt"])
    def test_json_and_yaml_mean_the_same(self, tmp_path, suffix):
        text = '{"count": 3, "parts": [{"rate_per_s": 2, "names": ["a"]}], "table": {"x": 0.5}}'
        wanted = Outer(count=3, parts=(Inner(rate_per_s=2.0, names=("a",)),), table={"x": 0.5})
        assert load_text(tmp_path, text, suffix) == wanted

    @pytest.mark.parametrize("number", ["64e9", "64.0e9", "6.4e10", "64_000_000_000", "64000000000"])
    def test_numbers_with_an_exponent_are_numbers(self, tmp_path, number):
        loaded = load_text(tmp_path, f"count: 1\nparts: [{{rate_per_s: {number}}}]")
        assert loaded.parts[0].rate_per_s == 64e9

    def test_yaml_1_2_scalars(self, tmp_path):
        loaded = load_text(tmp_path, "count: 1\nparts: [{rate_per_s: 1.0, names: [no, yes, on, 1:30]}]")
        assert loaded.parts[0].names == ("no", "yes", "on", "1:30")

    def test_aliases_are_read(self, tmp_path):
        text = "count: 1\nparts: [&x {rate_per_s: 1.0}, *x, &y {rate_per_s: 2.0}, *y]"
        assert [part.rate_per_s for part in load_text(tmp_path, text).parts] == [1, 1, 2, 2]

    def test_an_anchor_may_be_set_again(self, tmp_path):
        text = "count: 1\nparts: [&x {rate_per_s: 1.0}, *x, &x {rate_per_s: 2.0}, *x]"
        assert [part.rate_per_s for part in load_text(tmp_path, text).parts] == [1, 1, 2, 2]

    @given(documents)
    def test_dump_json_is_read_back(self, document):
        assert io.parse_json(io.dump_json(document), "x") == document
        assert io.parse_json(io.dump_json(document, indent=None), "x") == document

    def test_to_plain(self):
        outer = Outer(count=1, parts=(Inner(rate_per_s=2.0),))
        plain = io.to_plain(outer)
        assert plain == {
            "count": 1,
            "parts": [{"rate_per_s": 2.0, "names": []}],
            "table": None,
        }
        assert list(plain) == ["count", "parts", "table"]
        assert io.to_plain({1: (1, [2])}) == {"1": [1, [2]]}
        assert io.decode(plain, Outer, "x") == outer

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_dump_json_refuses_what_json_cannot_say(self, value):
        with pytest.raises(ValueError, match="not JSON compliant"):
            io.dump_json({"x": value})


class TestRefusedKeysAndTypes:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("count: 1\nsize: 2", "size: unknown key"),
            ("parts: []", "count: missing"),
            ("count: 1\nparts: [{}]", "parts[0].rate_per_s: missing"),
            ("count: 1\nparts: [{rate_per_s: 1.0, rate: 2}]", "parts[0].rate: unknown key"),
            ("count: 1.5", "count: 1.5: "),
            ("count: 2.0", "count: 2.0: "),
            ("count: true", "count: True: "),
            ('count: "1"', "count: '1': "),
            ("count:", "count: None: "),
            ('count: 1\nparts: [{rate_per_s: "64e9"}]', "parts[0].rate_per_s: '64e9': "),
            ("count: 1\nparts: [{rate_per_s: true}]", "parts[0].rate_per_s: True: "),
            ("count: 1\nparts: {rate_per_s: 1.0}", "parts: "),
            ("count: 1\nparts: [{rate_per_s: 1.0, names: [no, 2]}]", "parts[0].names[1]: 2: "),
            ("count: 1\ntable: {x: fast}", "table.x: 'fast': "),
            ("count: .nan", "count: nan is not a finite number"),
            ("count: 1\ntable: {x: .inf}", "table.x: inf is not a finite number"),
            ("count: 1\ntable: {x: -.inf}", "table.x: -inf is not a finite number"),
            ("count: 1\ntable: {x: 1e999}", "table.x: inf is not a finite number"),
            ("count: 9223372036854775808", "count: 9223372036854775808 is too large a number"),
            ("count: 1\ntable: {1: 2.0}", "table.1: keys must be text"),
            ("count: 1\n? [a, b]\n: 2", "('a', 'b'): keys must be text"),
            ("count: 2026-01-01", "count: datetime.date(2026, 1, 1) is not text, a number"),
            ("count: !!binary aGk=", "count: b'hi' is not text, a number"),
            ("count: 1\ntable: !!set {x}", "table: {'x'} is not text, a number"),
            ("", "None: "),
            ("just text", "'just text': "),
            ("[1]", "Input should be an object"),
        ],
    )
    def test_yaml(self, tmp_path, text, said):
        assert said in refusal(tmp_path, text)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{"count": 1, "size": 2}', "size: unknown key"),
            ('{"count": NaN}', "count: nan is not a finite number"),
            ('{"count": -Infinity}', "count: -inf is not a finite number"),
            ('{"count": 1e999}', "count: inf is not a finite number"),
            ('{"count": 1, "count": 2}', "not JSON: the key 'count' occurs twice"),
            ('{"count": 1, "table": {"x": 1, "y": 2, "x": 3}}', "the key 'x' occurs twice"),
            ('{"count": ' + "9" * 5000 + "}", "not JSON"),
            ('{"count": 1,\n}', "line 2: not JSON"),
            ("", "line 1: not JSON"),
            ("\ufeff{}", "line 1: not JSON"),
            ("count: 1", "line 1: not JSON"),
        ],
    )
    def test_json(self, tmp_path, text, said):
        assert said in refusal(tmp_path, text, ".json")

    def test_many_errors_are_cut(self, tmp_path):
        message = refusal(tmp_path, "\n".join(f"key{i}: 1" for i in range(20)))
        assert len(message.splitlines()) == 9
        assert "and 13 more" in message

    def test_long_values_are_cut(self, tmp_path):
        assert len(refusal(tmp_path, f"count: {'x' * 10_000}")) < 200


class TestRefusedYaml:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("count: 1\ncount: 2", 'line 2: not YAML: found duplicate key "count"'),
            ("count: 1\ntable: {x: 1, x: 2}", 'line 2: not YAML: found duplicate key "x"'),
            ("count: [1", "not YAML"),
            ("count: 1\n\t- x", "line 2: not YAML"),
            ("count: *x", "line 1: not YAML: found undefined alias"),
            ("count: 1\n---\ncount: 2", "not YAML"),
            ("count: !!python/object/apply:os.getcwd []", "not YAML: could not determine"),
            ("count: !mine 3", "not YAML: could not determine"),
            ("? {a: b}\n: 1", "not YAML: found unhashable key"),
            ("%YAML 3.0\n---\ncount: 1", "not YAML"),
            ("count: 1\nx: \x00", "not YAML"),
            ("count: 2026-13-41", "not YAML: month must be in 1..12"),
            # these trip the parser itself, each in its own way
            ("count: !!bool perhaps", "not YAML"),
            ("count: !!int ''", "not YAML"),
            ("count: !!float ''", "not YAML"),
            ("count: !!int three", "not YAML"),
            ("count: !!timestamp soon", "not YAML"),
            (r'count: "\U0FFFFFFF"', "not YAML"),
            ("count: " + "9" * 5000, "not YAML"),
            ("count: 0x" + "f" * 6000, "count: a number of thousands of digits is too large"),
            ("? 0x" + "f" * 600 + "\n: 1", "keys must be text"),
            ("[" * 1000, "nested too deeply"),
            ("[" * 500 + "]" * 500, "nested too deeply"),
            ("- " * 2000, "nested too deeply"),
            ("count: " + "[" * 61 + "]" * 61, "nested too deeply"),
        ],
    )
    def test_is_a_file_error(self, tmp_path, text, said):
        assert said in refusal(tmp_path, text)

    BOMBS = {  # noqa: RUF012
        "lists": ("[x, x, x, x, x, x, x, x, x]", "[{0}]", "{0}"),
        "mappings": ("{x: 1, y: 2}", "{{{0}}}", "k{1}: {0}"),
        "merges": ("{x: 1, y: 2}", "{{<<: [{0}]}}", "{0}"),
    }

    @pytest.mark.parametrize("kind", BOMBS)
    def test_alias_bomb(self, tmp_path, kind):
        """Nine levels of nine aliases each: 387 million nodes out of a few hundred bytes."""
        leaf, level, item = self.BOMBS[kind]
        lines = [f"a: &a {leaf}"]
        for before, this in zip("abcdefgh", "bcdefghi", strict=True):
            items = ", ".join(item.format(f"*{before}", i) for i in range(9))
            lines.append(f"{this}: &{this} {level.format(items)}")
        message = refusal(tmp_path, "\n".join(lines))
        assert "aliases count in full" in message or "merge keys (<<) are not read" in message

    @pytest.mark.parametrize("text", ["count: &x [*x]", "count: &x {y: *x}", "&x [*x]"])
    def test_alias_to_itself(self, tmp_path, text):
        assert "nested too deeply" in refusal(tmp_path, text)

    def test_merge_keys_are_not_read(self, tmp_path):
        message = refusal(tmp_path, "base: &x {count: 1}\nother:\n  <<: *x")
        assert message == "line 3: not YAML: merge keys (<<) are not read"

    @given(st.text(max_size=40) | st.text("abc:-[]{},&*!|>'\"#%@`\n \t?0123456789.e~<", max_size=60))
    @examples(300)
    def test_any_text(self, text):
        for parse in (io.parse_yaml, io.parse_json):
            message = message_of(lambda: io.decode(parse(text, "x"), Outer, "x"))  # noqa: B023
            assert message is None or message.startswith("x: ")

    TAGS = (
        "bool",
        "int",
        "float",
        "null",
        "timestamp",
        "binary",
        "set",
        "omap",
        "pairs",
        "seq",
        "map",
        "str",
    )

    @given(st.sampled_from(TAGS), st.text("01x-:. {}[]',eT", max_size=8))
    @examples(200)
    def test_any_text_under_any_tag(self, tag, text):
        message = message_of(
            lambda: io.decode(io.parse_yaml(f"count: !!{tag} {text}", "x"), Outer, "x")
        )
        assert message is None or message.startswith("x: ")


class TestRefusedFiles:
    def test_absent(self, tmp_path):
        with pytest.raises(FileError, match="no such file"):
            io.load(tmp_path / "none.yaml", Outer)

    @pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "none/some.yaml"])
    def test_no_file_of_that_name(self, tmp_path, name):
        with pytest.raises(FileError):
            io.read_text(Path(f"{tmp_path}/{name}"))

    def test_folder_and_device(self, tmp_path):
        for path in (tmp_path, Path(os.devnull)):
            with pytest.raises(FileError, match="is a folder or device"):
                io.read_text(path)

    @pytest.mark.parametrize("text", [b"count: \xe9", "count: 1".encode("utf-16"), b"\xff"])
    @pytest.mark.parametrize("suffix", [".yaml", ".json"])
    def test_not_utf_8(self, tmp_path, text, suffix):
        assert "not UTF-8 text (byte" in refusal(tmp_path, text, suffix)

    @pytest.mark.parametrize(
        ("suffix", "limit"), [(".yaml", "MAX_YAML_BYTES"), (".json", "MAX_FILE_BYTES")]
    )
    def test_too_large(self, tmp_path, suffix, limit):
        path = tmp_path / f"some{suffix}"
        path.touch()
        os.truncate(path, getattr(io, limit) + 1)  # sparse: takes no room
        with pytest.raises(FileError, match=f"bytes; at most {getattr(io, limit):,} are read"):
            io.load(path, Outer)

    def test_not_readable(self, tmp_path, monkeypatch):
        def refuse(*_args, **_kwargs):
            raise PermissionError(13, "Permission denied")

        path = tmp_path / "some.yaml"
        path.write_text("count: 1", encoding="utf-8")
        monkeypatch.setattr(Path, "read_text", refuse)
        with pytest.raises(FileError, match=r"some\.yaml: Permission denied"):
            io.load(path, Outer)


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old", encoding="utf-8")
    return path


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def fail(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


class TestWriting:
    @given(text=texts)
    def test_what_is_written_is_there(self, tmp_path_factory, text):
        path = tmp_path_factory.getbasetemp() / "any.txt"
        io.write_text(path, text)
        assert path.read_bytes() == text.encode()

    def test_replaces_what_was_there_and_leaves_nothing_else(self, target):
        io.write_text(target, "new")
        assert target.read_text(encoding="utf-8") == "new"
        assert names_in(target.parent) == [target.name]

    def test_has_the_permissions_of_a_new_file(self, tmp_path):
        plain = tmp_path / "plain"
        plain.write_text("", encoding="utf-8")
        io.write_text(tmp_path / "ours", "")
        assert (tmp_path / "ours").stat().st_mode == plain.stat().st_mode

    @pytest.mark.parametrize("step", ["replace", "chmod"])
    def test_old_content_stays_if_the_last_step_fails(self, target, monkeypatch, step):
        monkeypatch.setattr(Path, step, fail)
        with pytest.raises(FileError, match=r"result\.json: cannot be written: No space left"):
            io.write_text(target, "new")
        assert target.read_text(encoding="utf-8") == "old"
        assert names_in(target.parent) == [target.name]

    def test_old_content_stays_if_the_disk_is_full(self, target, monkeypatch):
        whole = os.fdopen

        def full_disk(*args, **kwargs):
            file = whole(*args, **kwargs)
            file.write(b"ne")
            file.flush()
            file.close()
            fail()

        monkeypatch.setattr(os, "fdopen", full_disk)
        with pytest.raises(FileError, match="No space left"):
            io.write_text(target, "new")
        assert target.read_text(encoding="utf-8") == "old"
        assert names_in(target.parent) == [target.name]

    def test_old_content_stays_if_the_user_interrupts(self, target, monkeypatch):
        def interrupt(*_args):
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            io.write_text(target, "new")
        assert target.read_text(encoding="utf-8") == "old"
        assert names_in(target.parent) == [target.name]

    def test_read_only_folder(self, target, monkeypatch):
        def refuse(*_args, **_kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(io.tempfile, "mkstemp", refuse)
        with pytest.raises(FileError, match=r"result\.json: cannot be written: Permission denied"):
            io.write_text(target, "new")
        assert target.read_text(encoding="utf-8") == "old"

    def test_folder_is_absent_or_a_file(self, tmp_path, target):
        for path in (tmp_path / "none" / "x.json", target / "x.json"):
            with pytest.raises(FileError, match=r"x\.json: cannot be written: "):
                io.write_text(path, "new")
        assert target.read_text(encoding="utf-8") == "old"
        assert names_in(tmp_path) == [target.name]

    def test_target_is_a_folder(self, tmp_path):
        with pytest.raises(FileError, match="cannot be written: is a folder"):
            io.write_text(tmp_path, "new")

    def test_device_is_written_and_not_replaced(self):
        io.write_text(Path(os.devnull), "new")
        assert Path(os.devnull).is_char_device()

    def test_plain_json(self, target):
        io.write_text(target, io.dump_json(Outer(count=3)))
        assert json.loads(target.read_text(encoding="utf-8"))["count"] == 3
        assert io.load(target, Outer) == Outer(count=3)


@pytest.mark.parametrize(("text", "message"), [
    ("part: {rate_per_s: fast}", "part.rate_per_s: 'fast': Input should be a valid number"),
    ("part: {rate: 1.0, rate_per_s: 1.0}", "part.rate: unknown key"),
])  # fmt: skip
def test_a_name_or_a_mapping_is_told_what_is_wrong_in_the_mapping(tmp_path, text, message):
    assert message_of(load_text, tmp_path, text, ".yaml", Choice).endswith(f"some.yaml: {message}")


def test_neither_a_name_nor_a_mapping_is_told_by_its_key(tmp_path):
    told = message_of(load_text, tmp_path, "part: 3", ".yaml", Choice).splitlines()
    assert [line.partition("some.yaml: ")[2] for line in told] == [
        "part: 3: Input should be a valid string",
        "part: 3: Input should be an object",
    ]
