"""Print a temporal program in a notation close to TiLT's (section 4.2).

    ~n0[t] = samples of input 0 { value: price } by symbol, each until the next
    ~n1[t] = {
      a = ⊕(mean, ~n0[t - 20s : t].value)
      b = ⊕(mean, ~n0[t - 50s : t].value)
      value: a > b
    }
    out ~n1

Accesses and reductions get letters as names; `show_program` prints objects in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from string import ascii_lowercase

from penstock.expr import nodes as ex
from penstock.expr.show import quoted
from penstock.expr.show import show as show_expr
from penstock.ir.signals.nodes import (
    At,
    Chop,
    Expression,
    Feedback,
    Hold,
    Last,
    Per,
    Program,
    Resample,
    Rolling,
    SampleAndHold,
    Sampled,
    SelfReference,
    Window,
    WindowReduction,
    at,
    past,
)
from penstock.ir.signals.scope import NO_END

Ticks = Callable[[int], str]


def show_program(program: Program, ticks: Ticks = str) -> str:
    """Print every object in order, then the name of the output; `ticks` prints lengths of time."""
    lines = [f"~{obj.name}[t] = {_body(obj.body, ticks)}" for obj in program.objects]
    return "\n".join([*lines, f"out ~{program.output}{', sample by sample' if program.pieces else ''}"])


def _body(body: object, ticks: Ticks) -> str:
    match body:
        case Sampled():
            by = f" by {', '.join(map(_name, body.keys))}" if body.keys else ""
            return (
                f"samples of input {body.input} {{ {_fields(body.fields)} }}{by}, {_hold(body.hold, ticks)}"
            )
        case Expression() | Feedback():
            return _block(body, ticks)
        case Resample(source=source, every=every, method=method, max_gap=gap):
            within = "" if gap is None else f" within {ticks(gap)}"
            return f"~{source}[t] resampled every {ticks(every)}, {method}{within}"
        case Chop(source=source, every=every, marks=marks, durations=durations):
            where = [] if every is None else [f"every {ticks(every)}"]
            where += [] if marks is None else [f"where {_at(marks, ticks)} is sampled"]
            return f"~{source}[t] chopped {' and '.join(where) or 'nowhere'}{', with durations' if durations else ''}"
        case SampleAndHold(source=source, clock=clock):
            return f"~{source}[t] where ~{clock} is sampled, held until the next"
    raise AssertionError(type(body))


def _hold(hold: Hold, ticks: Ticks) -> str:
    until = "each until the next"
    if hold.until is not None:
        until = f"each until {_name(hold.until)}"
    if hold.lasting is not None:
        until += f", {ticks(hold.lasting)} at most"
    return until + ("" if hold.resolve is None else f", resolved by {hold.resolve}")


def _block(body: Expression | Feedback, ticks: Ticks) -> str:
    """Assign letters to accesses, own results and reductions in order, then print the fields over them."""
    letters = _letters()
    names: dict[str, str] = {}
    lines: list[str] = []
    for i, access in enumerate(body.accesses):
        letter = next(letters)
        lines.append(f"{letter} = {_at(access, ticks)}")
        names |= {name: letter + _suffix(name) for name in _read(body, at(i, ""))}
    for i, own in enumerate(body.own if isinstance(body, Feedback) else ()):
        names[past(i)] = next(letters)
        lines.append(f"{names[past(i)]} = {_own(own, ticks)}")
    reduced = [next(letters) for _ in body.reductions]
    lines += [
        f"{letter} = {_over(over, ticks)}" for letter, over in zip(reduced, body.reductions, strict=True)
    ]

    def rule(node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Column(name=name):
                return ex.Column(names[name])
            case ex.Reduced(index=index):
                return ex.Column(reduced[index])
            case _:
                return node

    lines += [f"{_name(field.name)}: {show_expr(ex.rewrite(field.expr, rule))}" for field in body.fields]
    first = f"from {body.initial!r} on, " if isinstance(body, Feedback) else ""
    return "\n".join([f"{first}{{", *(f"  {line}" for line in lines), "}"])


def _letters() -> Iterator[str]:
    return (letter if not turn else f"{letter}{turn}" for turn in count() for letter in ascii_lowercase)


def _suffix(name: str) -> str:
    column = name.partition(".")[2]
    return "" if column == "value" else f"_{column}"


def _read(body: Expression | Feedback, prefix: str) -> list[str]:
    used = {name for field in body.fields for name in ex.columns_of(field.expr)}
    return sorted(name for name in used if name.startswith(prefix))


def _at(access: At, ticks: Ticks) -> str:
    return f"~{access.source}[{_moment(access.shift, ticks)}]"


def _own(own: SelfReference, ticks: Ticks) -> str:
    return f"itself, {own.back} samples ago" if own.back else f"itself[{_moment(own.shift, ticks)}]"


def _moment(shift: int, ticks: Ticks) -> str:
    return "t" if not shift else f"t - {ticks(shift)}" if shift > 0 else f"t + {ticks(-shift)}"


def _over(over: WindowReduction, ticks: Ticks) -> str:
    args = ", ".join(_arg(over, arg, ticks) for arg in over.args) or f"~{over.source}[{_span(over, ticks)}]"
    options = "".join(f", {name}={value!r}" for name, value in over.options if name != "definition")
    where = "" if over.where is None else f" where {show_expr(over.where)}"
    return f"⊕({over.function}, {args}{options}){where}"


def _arg(over: WindowReduction, arg: ex.Expr, ticks: Ticks) -> str:
    shown = show_expr(arg)
    return f"~{over.source}[{_span(over, ticks)}].{shown if isinstance(arg, ex.Column) else f'({shown})'}"


def _span(over: WindowReduction, ticks: Ticks) -> str:
    now = _moment(over.shift, ticks)
    match over.span:
        case Rolling(size=size) if size >= NO_END:
            return f"-∞ : {now}"
        case Rolling(size=size):
            return f"{now} - {ticks(size)} : {now}"
        case Last(rows=rows):
            return f"last {rows} : {now}"
        case Window(size=size, every=every):
            return f"⌊{now}⌋ - {ticks(size)} : ⌊{now}⌋ every {ticks(every)}"
        case Per(size=size):
            return f"⌊{now}⌋ : ⌊{now}⌋ + {ticks(size)}"


def _fields(fields: Iterable[ex.Field]) -> str:
    return "; ".join(f"{_name(field.name)}: {show_expr(field.expr)}" for field in fields)


def _name(name: str) -> str:
    return name if name.isidentifier() else quoted(name, "`")
