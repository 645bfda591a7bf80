"""The file format of Chakra execution traces: protobuf messages, each after its length.

The messages are described here field by field, as far as they are written, after the public schema of
MLCommons Chakra (``et_def.proto``). No maintained package for the format is on PyPI.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ficco_sim.errors import HardwareError

__all__ = ["Attributes", "encode_metadata", "encode_node"]

Attributes: TypeAlias = dict[str, int | str]

VERSION = "0.0.4"
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6}
# readers look for a value in the field of exactly this type
VALUE_FIELDS = {
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
}
# name of a message: its fields as number, name, type (> marks repeated, | one of several values)
MESSAGES = {
    "AttributeProto": (
        (1, "name", "string"),
        (7, "int32_val", "|int32"),
        (9, "int64_val", "|int64"),
        (13, "uint64_val", "|uint64"),
        (27, "bool_val", "|bool"),
        (29, "string_val", "|string"),
    ),
    "GlobalMetadata": ((1, "version", "string"), (2, "attr", ">AttributeProto")),
    "Node": (
        (1, "id", "uint64"),
        (2, "name", "string"),
        (3, "type", "int32"),  # an enum in the schema: the same on the wire
        (4, "ctrl_deps", ">uint64"),
        (5, "data_deps", ">uint64"),
        (10, "attr", ">AttributeProto"),
    ),
}


def encode_metadata(attributes: Mapping[str, int | str]) -> bytes:
    """The message that opens a file, with whatever attributes."""
    message = _classes()["GlobalMetadata"](version=VERSION)
    for name, value in attributes.items():
        message.attr.add(name=name, **{_value_field(name, value): value})
    return _delimited(message)


def encode_node(
    number: int,
    name: str,
    kind: str,
    deps: Sequence[int],
    queue_deps: Sequence[int],
    attributes: Mapping[str, int | str],
) -> bytes:
    """One node.

    All that it waits for are data dependencies, since some readers take no others; those that come
    from the order of a queue are control dependencies as well.
    """
    message = _classes()["Node"](
        id=number, name=name, type=NODE_TYPES[kind], data_deps=deps, ctrl_deps=queue_deps
    )
    message.attr.add(name="is_cpu_op", bool_val=False)
    for key, value in attributes.items():
        message.attr.add(name=key, **{_value_field(key, value): value})
    return _delimited(message)


def _value_field(name: str, value: int | str) -> str:
    return VALUE_FIELDS.get(name, "string_val" if isinstance(value, str) else "int64_val")


def _delimited(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.cache
def _classes() -> dict[str, Any]:
    """Message classes made from the description above.

    Raises
    ------
    HardwareError
        If protobuf is not installed.
    """
    try:
        from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
    except ImportError as error:
        raise HardwareError(
            "Chakra traces need protobuf, which is not installed: pip install 'ficco[chakra]'"
        ) from error

    package = "ChakraProtoMsg"
    file = FileDescriptorProto(name="et_def.proto", package=package, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            field = message.field.add(name=field_name, number=number)
            bare = kind.lstrip(">|")
            repeated = kind.startswith(">")
            field.label = (
                FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if bare in MESSAGES:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{bare}"
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{bare.upper()}")
            if kind.startswith("|"):  # a value of 0 is written too
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                field.oneof_index = 0
    pool = DescriptorPool()  # our own: other packages may know the schema under the same name
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in MESSAGES}
