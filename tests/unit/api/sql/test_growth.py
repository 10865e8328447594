"""The translation of nested SQL takes one step per node, also where a node is compared with several others."""

from __future__ import annotations

import pytest

import penstock as pk
from penstock.api.sql.expressions import Translator

U = pk.stream("u", {"t": "int64", "v": "int64"}, time="t")
NESTED = {
    "case": "case {} when 1 then 2 when 2 then 3 else 4 end",
    "between": "(case when {} between 1 and 2 then 3 else 4 end)",
    "in": "(case when {} in (1, v, 3) then 3 else 4 end)",
}


@pytest.mark.parametrize("form", NESTED)
def test_what_is_nested_is_translated_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translated = 0
    translate = Translator.__call__

    def counted(self: Translator, node: object) -> object:
        nonlocal translated
        translated += 1
        assert translated < 2000, "nodes are translated again and again"
        return translate(self, node)  # type: ignore[arg-type]

    monkeypatch.setattr(Translator, "__call__", counted)
    text = "v"
    for _ in range(20):
        text = NESTED[form].format(text)
    assert pk.sql(f"select {text} as x from u", u=U).schema.names == ["x"]
