"""Protobuf messages without a compiler: two files, of which one imports the other, and messages inside messages."""
from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPE = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: Any, type_name: str | None = None) -> Any:
    return TYPE(name=name, number=number, type=kind, label=TYPE.LABEL_OPTIONAL, type_name=type_name)


def _pool() -> Any:
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.append(_field("cents", 1, TYPE.TYPE_INT64))
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"])
    order.message_type.add(name="Customer").field.append(_field("name", 1, TYPE.TYPE_STRING))
    outer = order.message_type.add(name="Order")
    outer.field.extend([_field("id", 1, TYPE.TYPE_INT64), _field("total", 2, TYPE.TYPE_MESSAGE, ".shop.Money")])
    outer.nested_type.add(name="Note").field.append(_field("text", 1, TYPE.TYPE_STRING))
    line = outer.nested_type.add(name="Line")
    line.field.append(_field("amount", 1, TYPE.TYPE_INT32))
    line.nested_type.add(name="Detail").field.append(_field("text", 1, TYPE.TYPE_STRING))
    pool = descriptor_pool.DescriptorPool()
    for file in (money, order):
        pool.Add(file)
    return pool


_POOL = _pool()


def message_class(name: str) -> Any:
    """The generated class of ``shop.<name>``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"shop.{name}"))


Customer = message_class("Customer")
Order = message_class("Order")
Line = message_class("Order.Line")
Detail = message_class("Order.Line.Detail")
Money = message_class("Money")
