"""A small reader of Chakra execution traces, by the wire format alone: shares no code with the writer.

Field numbers are those of the public schema (MLCommons Chakra, et_def.proto).
"""

from dataclasses import dataclass, field
from pathlib import Path

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
NODE_TYPES = {4: "COMP", 5: "SEND", 6: "RECV"}
VALUE_FIELDS = {7: "int32", 9: "int64", 13: "uint64", 27: "bool", 29: "string"}


@dataclass
class Node:
    id: int
    name: str
    type: str
    data_deps: list[int]
    ctrl_deps: list[int]
    attributes: dict[str, int | str]
    types: dict[str, str] = field(default_factory=dict)


def read_trace(path: Path) -> tuple[dict[str, int | str], list[Node]]:
    """Metadata and nodes of one file; fails on anything that is not the format."""
    messages = list(_delimited(path.read_bytes()))
    header = _fields(messages[0])
    assert set(header) == {1, 2}
    assert header[1] == [b"0.0.4"]
    metadata, _ = _attributes(header[2])
    return metadata, [_node(message) for message in messages[1:]]


def _delimited(data: bytes):
    at = 0
    while at < len(data):
        size, at = _varint(data, at)
        assert 0 < size <= len(data) - at
        yield data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        assert shift < 64


def _fields(data: bytes) -> dict[int, list]:
    found: dict[int, list] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
        else:
            assert wire == BYTES, f"wire type {wire} is not used in these messages"
            size, at = _varint(data, at)
            value = data[at : at + size]
            assert len(value) == size
            at += size
        found.setdefault(number, []).append(value)
    return found


def _attributes(messages: list[bytes]) -> tuple[dict[str, int | str], dict[str, str]]:
    values, types = {}, {}
    for message in messages:
        fields = _fields(message)
        name = fields.pop(1)[0].decode()
        ((number, (value,)),) = fields.items()
        assert name not in values
        types[name] = VALUE_FIELDS[number]
        values[name] = value.decode() if types[name] == "string" else value
    return values, types


def _node(message: bytes) -> Node:
    fields = _fields(message)
    assert set(fields) <= {1, 2, 3, 4, 5, 10}
    attributes, types = _attributes(fields[10])
    return Node(
        id=fields[1][0],
        name=fields[2][0].decode(),
        type=NODE_TYPES[fields[3][0]],
        ctrl_deps=_packed(fields.get(4, [])),
        data_deps=_packed(fields.get(5, [])),
        attributes=attributes,
        types=types,
    )


def _packed(chunks: list[bytes]) -> list[int]:
    values = []
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            value, at = _varint(chunk, at)
            values.append(value)
    return values
