"""Serialise a plan to JSON text and back, to send a query to other processes. The text is never executed.

    text  ::= {"penstock-plan": version, "nodes": [node, …], "root": place}
    node  ::= {"is": name of a class of the grammar, "has": {field: value, …}}
    value ::= null | true | 1 | 1.5 | "text" | [value, …]     a tuple
            | {"node": place}          an earlier node: shared nodes stay shared
            | {"float": "nan"}         and "inf", "-inf"
            | {"bytes": base64} | {"type": type} | {"schema": [[name, type, nullable], …]}
            | {"function": number}     a Python function, sent separately from the text
    type  ::= "int64", "timestamp[us, tz=UTC]", … | {"ipc": base64 of an Arrow schema of one column}

The allowed classes are those reachable from the annotations of the plan grammar; each field is checked against its
annotation. A new node of the grammar can thus be serialised without further code, and no other class can.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from penstock.errors import PenstockError, PlanError, SchemaMismatchError, UnsupportedError, VerificationError
from penstock.expr.custom import Definition
from penstock.plan import nodes
from penstock.plan.nodes import Plan, ordered
from penstock.plan.schema import schema_of
from penstock.plan.verify import verify
from penstock.types.arrow import parse_type

PLAN_VERSION = 2
_VERSION = "penstock-plan"
MOST_PLAN_NODES = 1_000_000
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?(E[+-]?\d{1,2})?")  # of a decimal
_LARGEST = 1 << 64

Function = Callable[..., Any]


def encode(plan: Plan) -> tuple[str, tuple[Function, ...]]:
    """Write a plan as text; return the Python functions in it separately.

    >>> from penstock.plan.nodes import Source
    >>> from penstock.types.time import Time
    >>> source = Source("events", pa.schema({"t": pa.int64()}), Time("t", pa.int64(), None))
    >>> decode(encode(source)[0]) == source
    True
    """
    writer = _Writer()
    for node in ordered(plan):  # inputs first: recursion would be as deep as the plan
        writer.place(node)
    text = json.dumps(
        {_VERSION: PLAN_VERSION, "nodes": writer.nodes, "root": writer.place(plan)}, allow_nan=False
    )
    return text, tuple(writer.functions)


def encode_alone(plan: Plan) -> str:
    """Write a plan as text; raise an error if it contains a Python function."""
    text, functions = encode(plan)
    if functions:
        raise UnsupportedError(
            "a query with .apply(fn) cannot be written as text: a Python function has no safe form as data; "
            "run it with query.to_spark(spark), where Spark itself carries the function"
        )
    return text


def decode(text: str, functions: tuple[Function, ...] = ()) -> Plan:
    """Read a plan from untrusted text; raise `PlanError` unless it is complete, well typed and of this version."""
    try:
        plan = _Reader(functions).plan(json.loads(text))
        verify(plan)
        schema_of(plan)
    except VerificationError as error:
        raise PlanError(f"the text is not a plan that Penstock would write: {error}") from None
    except PenstockError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RecursionError):
        raise PlanError("the text is not a plan that Penstock would write") from None
    except pa.ArrowException:
        raise PlanError("the text names a type that Arrow does not have") from None
    return plan


# --- the grammar ------------------------------------------------------------------------------------------


@cache
def grammar() -> Mapping[str, type]:
    """Map names to all classes that a plan can contain."""
    found: dict[str, type] = {}
    waiting: list[Any] = [Plan, Definition]
    while waiting:
        hint = waiting.pop()
        if is_dataclass(hint) and isinstance(hint, type):
            if _name(hint) not in found:
                found[_name(hint)] = hint
                waiting += _annotations(hint).values()
        else:
            waiting += get_args(hint)
    return found


@cache
def _annotations(cls: Any) -> Mapping[str, Any]:
    # Some modules of the grammar reference classes they cannot import; `nodes` has all of them.
    scope = {**vars(nodes), **vars(sys.modules[cls.__module__])}
    given = get_type_hints(cls, localns=scope)
    return {column.name: given[column.name] for column in fields(cls) if column.init}


def _name(cls: type) -> str:
    return f"{cls.__module__.removeprefix('penstock.')}.{cls.__name__}"


# --- writing ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Writer:
    """The nodes written so far, without duplicates; inputs precede their readers."""

    nodes: list[Any] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)
    _alike: dict[str, int] = field(default_factory=dict)

    def place(self, node: Any) -> int:
        if id(node) not in self._places:
            has = {
                column.name: self.value(getattr(node, column.name)) for column in fields(node) if column.init
            }
            self._places[id(node)] = self._add({"is": _name(type(node)), "has": has})
        return self._places[id(node)]

    def _add(self, written: dict[str, Any]) -> int:
        place = self._alike.setdefault(json.dumps(written), len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(written)
        return place

    def value(self, value: Any) -> Any:
        match value:
            case None | bool() | int():
                return value
            case str():
                return str(value)
            case float():
                return value if math.isfinite(value) else {"float": str(value)}
            case bytes():
                return {"bytes": _base64(value)}
            case Decimal():
                return {"decimal": str(value)}
            case tuple():
                return [self.value(item) for item in value]
            case pa.DataType():
                return {"type": _type(value)}
            case pa.Schema():
                return {"schema": [[column.name, _type(column.type), column.nullable] for column in value]}
            case _ if is_dataclass(value) and _name(type(value)) in grammar():
                return {"node": self.place(value)}
            case _ if callable(value):
                self.functions.append(value)
                return {"function": len(self.functions) - 1}
        raise UnsupportedError(f"a plan that holds a {type(value).__name__} cannot be written as text")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _type(dtype: pa.DataType) -> Any:
    """Write a type by its name if the name is unambiguous, else in Arrow's IPC format."""
    try:
        if parse_type(str(dtype)) == dtype:
            return str(dtype)
    except SchemaMismatchError:
        pass
    return {"ipc": _base64(pa.schema([pa.field("", dtype)]).serialize().to_pybytes())}


# --- reading ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    """The nodes read so far."""

    functions: tuple[Function, ...]
    _nodes: list[Any] = field(default_factory=list)

    def plan(self, document: Any) -> Plan:
        if not isinstance(document, dict) or _VERSION not in document:
            raise PlanError("the text is not a plan; Stream.to_json() writes one")
        if document[_VERSION] != PLAN_VERSION:
            raise PlanError(
                "the plan was written by another version of Penstock; use the same version on driver and executors"
            )
        if len(document["nodes"]) > MOST_PLAN_NODES:
            _refuse("it is too large")
        for node in document["nodes"]:
            self._node(node)
        found = self._nodes[_place(document["root"], len(self._nodes))]
        root: Plan = found if isinstance(found, get_args(Plan)) else _refuse("its root is no stream")
        return root

    def _node(self, given: Any) -> None:
        cls = grammar().get(given["is"])
        if cls is None:
            _refuse("it holds a node that is not in the grammar of plans")
        hints, has = _annotations(cls), given["has"]
        if hints.keys() != has.keys():
            _refuse(f"the fields of a {cls.__name__} are others")
        values = {name: self._value(part) for name, part in has.items()}
        for name, hint in hints.items():
            if not _fits(values[name], hint):
                _refuse(f"{name} of a {cls.__name__} is of another type")
        self._nodes.append(cls(**values))

    def _value(self, given: Any) -> Any:
        match given:
            case None | bool() | str() | float():
                return given
            case int():
                return given if abs(given) <= _LARGEST else _refuse("a number in it is too large")
            case list():
                return tuple(self._value(argument) for argument in given)
            case {"node": at, **others} if not others:
                return self._nodes[_place(at, len(self._nodes))]
            case {"float": ("nan" | "inf" | "-inf") as name, **others} if not others:
                return float(name)
            case {"decimal": str(text), **others} if not others and _NUMBER.fullmatch(text):
                return Decimal(text)
            case {"bytes": str(text), **others} if not others:
                return base64.b64decode(text, validate=True)
            case {"type": dtype, **others} if not others:
                return _read_type(dtype)
            case {"schema": list(columns), **others} if not others:
                return pa.schema([pa.field(name, _read_type(dtype), null) for name, dtype, null in columns])
            case {"function": number, **others} if not others:
                return self.functions[_place(number, len(self.functions))]
        return _refuse("a value in it has no known form")


def _place(at: Any, length: int) -> int:
    return (
        at
        if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < length
        else _refuse("it points nowhere")
    )


def _read_type(given: Any) -> pa.DataType:
    match given:
        case str():
            return parse_type(given)
        case {"ipc": str(text)}:
            (column,) = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
            return column.type
    return _refuse("a type in it has no known form")


def _fits(value: Any, hint: Any) -> bool:
    """Check a value against an annotation of the grammar."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is object or hint is Any:
        return value is None or isinstance(
            value, bool | int | float | str | bytes | tuple | Decimal | Definition
        )
    if origin in (Union, UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple and args[-1:] == (...,):
        return isinstance(value, tuple) and all(_fits(item, args[0]) for item in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(args)
            and all(_fits(item, part) for item, part in zip(value, args, strict=True))
        )
    if origin is not None:  # collections.abc.Callable
        return callable(value) and not is_dataclass(value)
    if hint in (None, NoneType):
        return value is None
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _refuse(why: str) -> NoReturn:
    raise PlanError(f"the text is not a plan that Penstock would write: {why}")
