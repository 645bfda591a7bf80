"""Files in and out: strict YAML and JSON to dataclasses, whole-or-nothing writing.

The only file that imports pydantic and the YAML parser. It knows no domain type.
"""

import contextlib
import dataclasses
import functools
import io as text_io
import json
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from ficco_sim.errors import FileError

__all__ = [
    "check_folder_target",
    "check_target",
    "data_folder",
    "decode",
    "dump_json",
    "dump_yaml",
    "file_errors",
    "json_schema",
    "load",
    "parse_json",
    "parse_yaml",
    "read_document",
    "read_text",
    "to_plain",
    "write_text",
    "writing",
    "writing_folder",
]

T = TypeVar("T")

MAX_FILE_BYTES = 256 * 2**20
MAX_YAML_BYTES = 512 * 2**10  # the pure-Python parser needs seconds for more
MAX_NODES = 5_000_000
MAX_DEPTH = 60
YAML_LINE = 180  # characters; longer mappings are written a key per line


def data_folder() -> Path:
    """The folder of machine files: beside the package in a checkout, inside it when installed."""
    package = Path(str(resources.files("ficco_sim")))
    for folder in (package.parent / "topologies", package / "data" / "topologies"):
        if (folder / "gpus").is_dir():
            return folder
    raise FileError(f"no machine files beside {package}; the installation is incomplete")


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Read a UTF-8 text file of bounded size.

    Raises
    ------
    FileError
        If the file is absent, not readable, too large or not UTF-8.
    """
    try:
        if not path.is_file():
            kind = "is a folder or device, not a file" if path.exists() else "no such file"
            raise FileError(f"{path}: {kind}")
        size = path.stat().st_size
        if size > max_bytes:
            raise FileError(f"{path}: {size:,} bytes; at most {max_bytes:,} are read")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def read_document(path: Path) -> Any:
    """Read a YAML (1.2) or JSON file into plain dicts, lists and scalars."""
    is_json = path.suffix == ".json"
    text = read_text(path, MAX_FILE_BYTES if is_json else MAX_YAML_BYTES)
    return parse_json(text, str(path)) if is_json else parse_yaml(text, str(path))


def load(path: Path, cls: type[T], *, lines: bool = False) -> T:
    """Read a file and check it against a dataclass: unknown keys and wrong types are refused.

    Parameters
    ----------
    path
        A ``.json`` file; any other suffix is read as YAML.
    cls
        The dataclass that describes the document.
    lines
        Whether errors name lines too: for files that people write by hand.

    Raises
    ------
    FileError
        Naming the file, the key, the value and the rule.
    """
    document = read_document(path)
    return decode(document, cls, str(path), functools.partial(_key_lines, path) if lines else None)


def decode(
    document: Any, cls: type[T], where: str, lines: Callable[[], Mapping[str, int]] | None = None
) -> T:
    """Check plain data against a dataclass; ``where`` opens every error message.

    ``lines``, if given, tells where each key is; it is asked only for errors.
    """
    from pydantic import ValidationError

    _check_plain(document, where)
    try:
        # strict mode takes lists for tuples only in JSON input
        return cast("T", _adapter(cast("Hashable", cls)).validate_json(json.dumps(document)))
    except ValidationError as error:
        raise FileError(_explain(error, where, lines() if lines else {})) from error


def _key_lines(path: Path) -> dict[str, int]:
    """The line of every key of a YAML or JSON file, keys written as in error messages."""
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    found: dict[str, int] = {}
    stack = [("", YAML(typ="safe", pure=True).compose(read_text(path, MAX_YAML_BYTES)))]
    while stack:
        key, node = stack.pop()
        parts: list[tuple[str, Any, Any]] = []
        if isinstance(node, MappingNode):
            parts = [(_join(key, str(name.value)), name, value) for name, value in node.value]
        elif isinstance(node, SequenceNode):
            parts = [(f"{key}[{i}]", item, item) for i, item in enumerate(node.value)]
        for name, mark, value in parts:
            if name not in found:  # an alias is met again, and may hold itself
                found[name] = mark.start_mark.line + 1
                stack.append((name, value))
    return found


def _place(where: str, key: str, message: str, lines: Mapping[str, int]) -> str:
    """File and line of a key, or of the innermost thing around it whose line is known."""
    if not lines:
        return where
    # checks of our own open with the key that they are about
    inner = re.match(r"[\w.\[\]-]+(?=: )", message)
    at = _join(key, inner[0]) if inner else key
    while at and at not in lines:
        at = at[: max(at.rfind("."), at.rfind("["), 0)]
    return f"{where}: line {lines[at]}" if at else where


@functools.cache
def _adapter(cls: Hashable) -> Any:
    """Made once for each class: that takes longer than a short document."""
    from pydantic import TypeAdapter

    return TypeAdapter(cast("Any", cls))


def json_schema(cls: Any, title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents that `decode` takes for a dataclass."""
    from pydantic.json_schema import GenerateJsonSchema

    class Brief(GenerateJsonSchema):
        """Leaves out titles that only repeat the names of fields."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
            return False

    schema = _adapter(cls).json_schema(schema_generator=Brief)
    return {"$schema": Brief.schema_dialect, **schema, "title": title}


def to_plain(obj: Any) -> Any:
    """Turn nested dataclasses into plain dicts, lists and scalars, in field order."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {f.name: to_plain(getattr(obj, f.name)) for f in dataclasses.fields(obj)}
    if isinstance(obj, (list, tuple)):
        return [to_plain(item) for item in obj]
    if isinstance(obj, dict):
        return {str(key): to_plain(value) for key, value in obj.items()}
    return obj


def dump_json(obj: Any, *, indent: int | None = 1) -> str:
    """Serialise dataclasses or plain data to JSON text; not-a-number is refused."""
    return json.dumps(to_plain(obj), indent=indent, allow_nan=False) + "\n"


def dump_yaml(obj: Any) -> str:
    """Serialise dataclasses or plain data to YAML text that reads back equal.

    Fields of dataclasses that have their default value are left out. Innermost mappings and lists
    take one line each, and numbers such as 64.0e+9 are written so that YAML 1.1 readers take them
    for numbers as well.

    Examples
    --------
    >>> print(dump_yaml({"rate": 64e9, "links": [{"src": 0, "dst": 1}]}), end="")
    rate: 64.0e+9
    links:
    - {src: 0, dst: 1}
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        """Puts short mappings and lists of scalars on one line each."""

        def represent_mapping(self, tag: Any, mapping: Any, flow_style: Any = None) -> Any:
            node = super().represent_mapping(tag, mapping, flow_style)
            return on_one_line(node, [part for pair in node.value for part in pair])

        def represent_sequence(self, tag: Any, sequence: Any, flow_style: Any = None) -> Any:
            node = super().represent_sequence(tag, sequence, flow_style)
            return on_one_line(node, node.value)

        def represent_float(self, data: float) -> Any:
            return self.represent_scalar("tag:yaml.org,2002:float", _float_text(data))

    def on_one_line(node: Any, parts: list[Any]) -> Any:
        short = sum(len(p.value) + 2 for p in parts if isinstance(p, ScalarNode)) <= YAML_LINE
        node.flow_style = short and all(isinstance(p, ScalarNode) for p in parts)
        return node

    Representer.add_representer(float, Representer.represent_float)
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = Representer
    yaml.width = 4096
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = text_io.StringIO()
    yaml.dump(_brief(obj), stream)
    return stream.getvalue()


def _float_text(value: float) -> str:
    """The shortest form with an exponent that is a multiple of 3, else what Python writes."""
    if not math.isfinite(value):
        raise FileError(f"{value} is not a finite number and cannot be written")
    text = repr(value)
    if 1e-30 < abs(value) < 1e30:
        power = math.floor(math.log10(abs(value)) / 3) * 3
        mantissa = f"{value / 10.0**power:.12g}"
        engineering = f"{mantissa if '.' in mantissa else mantissa + '.0'}e{power:+d}"
        if power and float(engineering) == value:
            return engineering
    return text if "." in text else text.replace("e", ".0e")


def _brief(obj: Any) -> Any:
    """As `to_plain`, without fields of dataclasses that have their default value."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {
            f.name: _brief(value)
            for f in dataclasses.fields(obj)
            if (value := getattr(obj, f.name)) != f.default
        }
    if isinstance(obj, (list, tuple)):
        return [_brief(item) for item in obj]
    if isinstance(obj, dict):
        return {str(key): _brief(value) for key, value in obj.items()}
    return obj


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all: what was there stays until the new text is complete.

    Raises
    ------
    FileError
        If the folder is absent or not writable.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a binary file whole or not at all; see `write_text`."""
    with writing(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write to, which takes its name, whole and on disk, when the context ends.

    Raises
    ------
    FileError
        As `write_text`; nothing has changed then, and neither if the context ends with an error.
    """
    check_target(path)
    with file_errors(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as device:  # such as /dev/stdout; cannot be replaced
                yield device
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name, with all its files, when the context ends.

    Raises
    ------
    FileError
        If the path is there already and is not an empty folder, or cannot be made; nothing has
        changed then, and neither if the context ends with an error.
    """
    check_folder_target(path)
    with file_errors(path):
        made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield made
            for file in made.iterdir():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            made.chmod(0o777 & ~_umask())
            if path.is_dir():
                path.rmdir()  # only an empty one goes
            made.rename(path)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


def _umask() -> int:
    umask = os.umask(0)  # it can only be read by setting it
    os.umask(umask)
    return umask


def check_folder_target(path: Path) -> None:
    """Refuse a folder that `writing_folder` cannot make, before the work that would fill it."""
    with file_errors(path):
        if path.exists() and not path.is_dir():
            raise FileError(f"{path}: cannot be written: is a file, not a folder")
        if path.is_dir() and any(path.iterdir()):
            raise FileError(f"{path}: cannot be written: the folder is not empty")
        _check_parent(path)
        _check_writable(path, path.parent)


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that would fill it.

    Raises
    ------
    FileError
        If the path is a folder, or its folder is absent or not writable.
    """
    with file_errors(path):
        if path.is_dir():
            raise FileError(f"{path}: cannot be written: is a folder")
        _check_parent(path)
        _check_writable(path, path if path.exists() else path.parent)


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileError(f"{path}: cannot be written: no folder {path.parent}")


def _check_writable(path: Path, needed: Path) -> None:
    if not os.access(needed, os.W_OK):
        raise FileError(f"{path}: cannot be written: no permission")


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Errors of the system become ones that name the file."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def parse_json(text: str, where: str) -> Any:
    """Read JSON text into plain dicts, lists and scalars; ``where`` opens every error message."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:  # a key that occurs twice, a number of thousands of digits
        raise FileError(f"{where}: not JSON: {error}") from error
    except RecursionError as error:
        raise FileError(f"{where}: nested too deeply") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {_short(twice)} occurs twice")
    return mapping


def parse_yaml(text: str, where: str) -> Any:
    """Turn YAML 1.2 text into plain data; ``where`` opens every error message."""
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import ConstructorError, SafeConstructor
    from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning

    class Constructor(SafeConstructor):
        def flatten_mapping(self, node: Any) -> None:
            """Refuse merge keys: YAML 1.2 has none, and nested ones grow without bound."""
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    raise ConstructorError(
                        problem="merge keys (<<) are not read", problem_mark=key.start_mark
                    )

    yaml = YAML(typ="safe")
    yaml.Constructor = Constructor
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)
            return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}:" if mark is not None else ""
        raise FileError(f"{where}:{line} not YAML: {error.problem or error.context}") from error
    except (YAMLError, ValueError) as error:
        raise FileError(f"{where}: not YAML: {str(error).splitlines()[0]}") from error
    except (LookupError, TypeError, AttributeError) as error:  # the parser trips over a tag
        raise FileError(f"{where}: not YAML: a value does not fit its tag") from error
    except RecursionError as error:
        raise FileError(f"{where}: nested too deeply") from error


def _check_plain(document: Any, where: str) -> None:
    """Refuse what JSON cannot say, and documents that grow without bound through aliases."""
    budget = MAX_NODES
    stack: list[tuple[Any, str, int]] = [(document, "", 0)]
    while stack:
        node, key, depth = stack.pop()
        budget -= 1
        if budget < 0 or depth > MAX_DEPTH:
            raise FileError(f"{where}: too large or nested too deeply (aliases count in full)")
        if isinstance(node, dict):
            for name, value in node.items():
                if not isinstance(name, str):
                    raise FileError(f"{where}: {_join(key, _short(name))}: keys must be text")
                stack.append((value, _join(key, name), depth + 1))
        elif isinstance(node, list):
            stack.extend((value, f"{key}[{i}]", depth + 1) for i, value in enumerate(node))
        elif isinstance(node, float) and not math.isfinite(node):
            raise FileError(f"{where}: {key}: {node} is not a finite number")
        elif isinstance(node, int) and not isinstance(node, bool) and abs(node) >= 2**63:
            raise FileError(f"{where}: {key}: {_short(node)} is too large a number")
        elif node is not None and not isinstance(node, (str, int, float, bool)):
            raise FileError(f"{where}: {key}: {_short(node)} is not text, a number or a truth value")


def _join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


# scalars mark the branch of a union by their type's name; errors of that branch end with it
SCALARS: dict[tuple[int | str, ...], tuple[str, ...]] = {
    ("str",): ("string_type",),
    ("int",): ("int_type", "int_from_float"),
}


def _of_meant_classes(items: list[Any]) -> list[Any]:
    """In a union of classes that differ by ``kind``, keep the errors of the class that was meant."""

    def branch(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
        classes = [i for i, part in enumerate(loc) if isinstance(part, str) and part[:1].isupper()]
        return loc[: classes[-1] + 1] if classes else ()

    other = {
        item["loc"][:-1]
        for item in items
        if item["type"] == "literal_error"
        and item["loc"][-1] == "kind"
        and item["loc"][:-1] == branch(item["loc"])
    }
    meant = {branch(item["loc"])[:-1] for item in items if branch(item["loc"]) not in other}
    return [
        item
        for item in items
        if (of := branch(item["loc"])) not in other
        or (of[:-1] not in meant and item["loc"] == (*of, "kind"))
    ]


def _of_meant_kind(items: list[Any]) -> list[Any]:
    """In a union of a name and a class, keep what is wrong inside of a mapping: no name was meant."""
    return [
        item
        for item in items
        if item["type"] != "string_type"
        or not isinstance(item["input"], dict)
        or not any(
            other is not item and other["loc"][: len(item["loc"]) - 1] == item["loc"][:-1]
            for other in items
        )
    ]


def _explain(error: Any, where: str, key_lines: Mapping[str, int]) -> str:
    """Turn a pydantic error into lines of file, key, value and rule."""
    lines = []
    for item in _of_meant_kind(_of_meant_classes(error.errors(include_url=False))):
        kind = item["type"]
        key = ""
        for part in item["loc"][:-1] if kind in SCALARS.get(item["loc"][-1:], ()) else item["loc"]:
            if isinstance(part, int):
                key += f"[{part}]"
            elif not part[:1].isupper():  # a class name marks the branch of a union
                key = _join(key, part)
        message = item["msg"].removeprefix("Value error, ")
        if kind in ("unexpected_keyword_argument", "extra_forbidden"):
            message = "unknown key"
        elif kind == "missing":
            message = "missing"
        elif not isinstance(item["input"], (dict, list)):
            message = f"{_short(item['input'])}: {message}"
        place = _place(where, key, message, key_lines)
        lines.append(f"{place}: {key}: {message}" if key else f"{place}: {message}")
    unique = list(dict.fromkeys(lines))
    shown = unique[:8]
    if len(unique) > len(shown):
        shown.append(f"{where}: and {len(unique) - len(shown)} more")
    return "\n".join(shown)
