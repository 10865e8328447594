"""tests/unit mirrors the package: a folder per package, and every operator beside its plain twin."""

from __future__ import annotations

import pytest

from tests.law.source import ROOT, SRC

UNIT = ROOT / "tests" / "unit"
PACKAGES = sorted(
    path.relative_to(SRC).as_posix()
    for pattern in ("*", "operators/*", "algorithms/*")
    for path in SRC.glob(pattern)
    if (path / "__init__.py").exists()
)
OPERATORS = sorted(path.name for path in (SRC / "operators").iterdir() if (path / "stage.py").exists())
EVERY_OPERATOR = {
    "rows", "pane_aggregate", "sorted_windows", "look_back", "signals", "joins", "distinct", "topk", "union",
}  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_folder_of_unit_tests(package: str) -> None:
    assert list((UNIT / package).rglob("test_*.py")), f"tests/unit/{package} has no tests"


@pytest.mark.parametrize("operator", sorted(EVERY_OPERATOR))
def test_an_operator_is_tested_against_its_plain_twin(operator: str) -> None:
    path = UNIT / "operators" / operator / f"test_{operator}_twin.py"
    assert path.exists(), f"{path.relative_to(ROOT)} is missing"
    assert "assert_as_its_twin" in path.read_text(encoding="utf-8")


def test_every_operator_of_the_package_is_listed_here() -> None:
    assert set(OPERATORS) <= EVERY_OPERATOR
    folders = {path.name for path in (SRC / "operators").iterdir() if (path / "__init__.py").exists()}
    assert folders - {"__pycache__"} == EVERY_OPERATOR
