"""The allow-list: the syntax nodes of streaming SQL, and their allowed arguments.

The parser accepts far more than we translate, and stores it in arguments that are easy to overlook: a NOT, an
ESCAPE, WITH TIES. So the whole tree is checked against this list first; everything else is rejected.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.api.sql.source_span import Text

_BINARY = "Add Sub Mul And Or Xor Pow EQ NEQ LT LTE GT GTE NullSafeEQ NullSafeNEQ IntDiv Mod Is Filter WithinGroup Extract"
_UNARY = "Paren Neg Not IgnoreNulls RespectNulls From Where Having Ceil Floor TableAlias Var Boolean"
_LISTS = "With Group Order Distinct"
_PARTS = {
    **dict.fromkeys(_BINARY.split(), "this expression"),
    **dict.fromkeys(_UNARY.split(), "this"),
    **dict.fromkeys(_LISTS.split(), "expressions"),
    "Select": "expressions from_ joins where group having distinct order limit with_",
    "Union": "this expression distinct with_",
    "Subquery": "this alias with_",
    "CTE": "this alias",
    "Table": "this alias",
    "Join": "this side kind method on using",
    "Ordered": "this desc nulls_first",
    "Limit": "expression",
    "Alias": "this alias",
    "Column": "this table",
    "Dot": "this expression",
    "Identifier": "this quoted",
    "Literal": "this is_string",
    "Star": "",
    "Null": "",
    "Div": "this expression typed safe",
    "DPipe": "this expression safe",
    "Interval": "this unit",
    "In": "this expressions",
    "Between": "this low high",
    "Like": "this expression negate",
    "ILike": "this expression negate",
    "Case": "this ifs default",
    "If": "this true false",
    "Cast": "this to _type",
    "DataType": "this kind expressions",
    "DataTypeParam": "this",
    "Anonymous": "this expressions",
    "Trim": "this expression",
    "Substring": "this start length",
}
ALLOWED = {name: frozenset(parts.split()) for name, parts in _PARTS.items()}
_STATEMENT = "a query is a SELECT, or several with UNION ALL"
_ALONE = "behind a stream stand its window and its alias, nothing else"
_HINTS = {
    "Window": "OVER is not part of streaming SQL; put a window behind the stream, [range …], or use .rolling(...)",
    "Exists": "a sub-query stands in FROM only; join with it there",
    "In": "IN takes a list of values; join with the other stream instead of a sub-query",
    "Group": "GROUP BY takes values; GROUPING SETS, CUBE, ROLLUP and ALL are not part of streaming SQL",
    "Rollup": "GROUP BY takes values; ROLLUP is not part of streaming SQL",
    "Join": "joins take ON or USING",
    "Table": _ALONE,
    "TableAlias": "a name has no list of columns behind it here; name columns with AS in the SELECT list",
    "Distinct": "DISTINCT ON is not part of streaming SQL; use last(…) and GROUP BY",
    "Limit": "LIMIT takes a whole number of rows, and nothing further",
    "Star": "a star takes no EXCEPT, REPLACE or RENAME",
    "Column": "a column is called by its name, or by stream.name; fields of a struct follow it behind dots",
    "Trim": "TRIM takes characters off both ends; write trim(x), or trim(x, 'chars')",
    "Floor": "floor and ceil take one argument",
    "Ceil": "floor and ceil take one argument",
    "With": "WITH RECURSIVE is not part of streaming SQL",
    "Union": "behind UNION ALL stands nothing further; put it into a sub-query",
    "Subquery": "behind a sub-query stand its window and its name, nothing else",
    "Order": "inside an aggregate rows have the order of time; ORDER BY stands in WITHIN GROUP only",
    **dict.fromkeys(
        ("Except", "Intersect", "Insert", "Create", "Drop", "Command", "Update", "Delete"), _STATEMENT
    ),
}


def check(tree: exp.Expression, text: Text) -> None:
    """Reject every node, and every argument of a node, that is not allowed."""
    for node in tree.walk():
        name = type(node).__name__
        allowed = ALLOWED.get(name)
        further = (
            [] if allowed is None else [key for key, part in node.args.items() if part and key not in allowed]
        )
        if allowed is None or further:
            raise text.error(_reason(name, further), node)


def _reason(name: str, further: list[str]) -> str:
    if name in _HINTS:
        return _HINTS[name]
    if further:
        return f"{further[0].strip('_').upper()} is not part of streaming SQL here"
    return f"this syntax ({name}) is not part of streaming SQL"
