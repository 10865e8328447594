"""Window table functions: `TUMBLE(TABLE s, DESCRIPTOR(ts), size)` in FROM, as in Flink and Calcite.

The parser does not support them. Each is replaced by the name of its stream, and becomes the window clause of
that name: the same clause that `[range 10 slide 2]` is, with the column that DESCRIPTOR names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot.tokens import Token, TokenType

from penstock.api.sql.source_span import Text
from penstock.api.sql.window_clauses import Clause, Length, Reader

_LENGTHS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"tumble": ("size", "offset"), "hop": ("slide", "size", "offset"), "session": ("gap",)}
)
"""The lengths of each function after its stream and its time column, in their order; an offset may be left out."""
_HOW = (
    "write TUMBLE(TABLE s, DESCRIPTOR(ts), size), HOP(TABLE s, DESCRIPTOR(ts), slide, size) "
    "or SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), gap)"
)
_STREAM, _TIME = "data", "timecol"
_BEFORE = (TokenType.FROM, TokenType.JOIN, TokenType.TABLE)


def without_functions(given: list[Token], text: Text) -> tuple[list[Token], dict[int, Clause]]:
    """Replace each window function by the name of its stream; return the clauses by the positions of these names."""
    kept: list[Token] = []
    clauses: dict[int, Clause] = {}
    place = 0
    while place < len(given):
        opening = _opening(given, place)
        if opening is None:
            kept.append(given[place])
            place += 1
            continue
        end = _closing(given, opening, text)
        name, clause = _function(given[opening - 1 : end + 1], text)
        place = end + 1
        if opening - 1 > _start(given, opening):
            place = _closed(given, place, text)
        kept.append(name)
        clauses[int(name.start)] = clause
    return kept, clauses


def _opening(given: list[Token], place: int) -> int | None:
    """Return the bracket that opens the arguments, if a window function, or TABLE( and one, begins here."""
    at = place
    if given[at].token_type == TokenType.TABLE and _is(given, at + 1, TokenType.L_PAREN):
        at += 2
    wrapped = at > place
    if not _is(given, at + 1, TokenType.L_PAREN) or given[at].text.lower() not in (*_LENGTHS, "cumulate"):
        return None
    first = given[at + 2] if at + 2 < len(given) else None
    is_stream = first is not None and (
        first.token_type == TokenType.TABLE
        or (first.text.lower() == _STREAM and _is(given, at + 3, TokenType.FARROW))
    )
    in_from = place > 0 and given[place - 1].token_type in _BEFORE
    return at + 1 if wrapped or is_stream or in_from else None


def _start(given: list[Token], opening: int) -> int:
    """Return where the function begins with the TABLE( that may stand before it."""
    wrapped = (
        opening >= 3
        and given[opening - 3].token_type == TokenType.TABLE
        and _is(given, opening - 2, TokenType.L_PAREN)
    )
    return opening - 3 if wrapped else opening - 1


def _is(given: list[Token], place: int, kind: TokenType) -> bool:
    return place < len(given) and given[place].token_type == kind


def _closing(given: list[Token], opening: int, text: Text) -> int:
    depth = 0
    for place in range(opening, len(given)):
        depth += (given[place].token_type == TokenType.L_PAREN) - (
            given[place].token_type == TokenType.R_PAREN
        )
        if depth == 0:
            return place
    raise text.error_at("this bracket is not closed", given[opening].start, given[opening].end)


def _closed(given: list[Token], place: int, text: Text) -> int:
    """Step over the bracket that closes TABLE(…)."""
    if not _is(given, place, TokenType.R_PAREN):
        token = given[min(place, len(given) - 1)]
        raise text.error_at(
            f"a bracket is missing behind the window function; {_HOW}", token.start, token.end
        )
    return place + 1


def _function(given: list[Token], text: Text) -> tuple[Token, Clause]:
    """Parse a function, from its name to its closing bracket."""
    function, start, end = given[0].text.lower(), given[0].start, given[-1].end
    if function not in _LENGTHS:
        raise text.error_at(
            "CUMULATE is not part of streaming SQL here; use TUMBLE, HOP or SESSION", start, end
        )
    arguments = _named(_split(given[2:-1]), function, text, (start, end))
    stream, partition = _stream(arguments[_STREAM])
    if partition and function != "session":
        raise arguments[_STREAM].wrong("has PARTITION BY: TUMBLE and HOP take none")
    lengths = {name: _length(arguments[name]) for name in _LENGTHS[function] if name in arguments}
    size = lengths["gap" if function == "session" else "size"]
    clause = Clause(
        "session" if function == "session" else "range",
        size,
        lengths.get("slide"),
        partition=partition,
        offset=lengths.get("offset"),
        descriptor=_descriptor(arguments[_TIME]),
        start=start,
        end=end,
    )
    return stream, clause


def _split(given: list[Token]) -> list[list[Token]]:
    """Split arguments at the commas outside of brackets."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in given:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.COMMA and depth == 0:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _named(
    arguments: list[list[Token]], function: str, text: Text, span: tuple[int, int]
) -> dict[str, Reader]:
    """Assign arguments to parameters: by position, or by name with `=>`."""
    parameters = (_STREAM, _TIME, *_LENGTHS[function])
    found: dict[str, Reader] = {}
    for place, tokens in enumerate(arguments):
        named = _is(tokens, 1, TokenType.FARROW)
        name = tokens[0].text.lower() if named else parameters[place] if place < len(parameters) else ""
        reader = Reader(tokens[2:] if named else tokens, *span, text, _HOW)
        if name not in parameters or name in found:
            raise Reader(tokens, *span, text, _HOW).wrong("is not an argument here")
        found[name] = reader
    if not {*parameters} - {"offset"} <= {*found}:
        raise text.error_at(f"arguments are missing; {_HOW}", *span)
    return found


def _stream(reader: Reader) -> tuple[Token, tuple[str, ...]]:
    """Parse `TABLE name [PARTITION BY a, b]`."""
    if _is(reader.tokens, 0, TokenType.TABLE):
        reader.pop()
    if not reader.tokens or reader.tokens[0].token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
        raise reader.wrong("is not the name of a stream; name a sub-query in WITH first")
    name = reader.pop()
    if not reader.tokens:
        return name, ()
    words = reader.tokens[0].text.lower().split()
    if words != ["partition", "by"]:
        raise reader.wrong("is not expected here; leave it out")
    reader.pop()
    brackets = (TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA)
    columns = [token for token in reader.tokens if token.token_type not in brackets]
    return name, tuple(
        Reader([token], reader.start, reader.end, reader.text, _HOW).name() for token in columns
    )


def _descriptor(reader: Reader) -> str:
    """Parse `DESCRIPTOR(ts)`, or a column alone."""
    if (
        reader.tokens
        and reader.tokens[0].text.lower() == "descriptor"
        and _is(reader.tokens, 1, TokenType.L_PAREN)
    ):
        reader.tokens = reader.tokens[2:-1]
    name = reader.name()
    if reader.tokens:
        raise reader.wrong("is not expected here: windows are cut along one column; leave it out")
    return name


def _length(reader: Reader) -> Length:
    """Parse a length; the precision of `SECOND(3)` says nothing further."""
    if [token.token_type for token in reader.tokens[-3:]] == [
        TokenType.L_PAREN,
        TokenType.NUMBER,
        TokenType.R_PAREN,
    ]:
        reader.tokens = reader.tokens[:-3]
    found = reader.length()
    if reader.tokens:
        raise reader.wrong("is not expected here; leave it out")
    return found
