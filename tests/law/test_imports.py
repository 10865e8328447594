"""The import law: what may stand on what, and what `import penstock` may load."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.law.source import ROOT, SRC, imports_of, label, python_files, tree_of

HEAVY = (
    "duckdb",
    "llvmlite",
    "matplotlib",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlglot",
    "typer",
)
LINT = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def run_python(code: str, folder: Path = ROOT / "src") -> subprocess.CompletedProcess[str]:
    """Run in a fresh interpreter that sees the package under `folder` before any installed one."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.fixture
def copy_of_the_source(tmp_path: Path) -> Path:
    shutil.copytree(SRC, tmp_path / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_contract_is_kept(copy_of_the_source: Path) -> None:
    done = run_python(LINT, copy_of_the_source)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "imported", "contract"),
    [
        ("plan", "penstock.ir.nodes", "The plan"),
        ("loop", "penstock.plan.nodes", "Each floor"),
        ("expr", "penstock.plan.nodes", "Each floor"),
        ("passes", "penstock.api", "Each floor"),
        ("codegen", "penstock.algorithms.selection", "Each floor"),
        ("runtime", "penstock.algorithms.selection", "The runtime"),
        ("runtime", "penstock.ir.nodes", "The runtime"),
        ("runtime", "penstock.codegen", "The runtime"),
        ("sources", "penstock.plan.nodes", "Sources"),
        ("api", "llvmlite.binding", "Only codegen"),
        ("runtime", "pyspark.sql", "Only spark"),
        ("api", "sqlglot.exp", "Only api/sql"),
        ("cli", "benchmarks.run", "The package"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    copy_of_the_source: Path, package: str, imported: str, contract: str
) -> None:
    planted = copy_of_the_source / "penstock" / package / "planted.py"
    planted.write_text(f"import {imported}\n", encoding="utf-8")
    done = run_python(LINT, copy_of_the_source)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^{contract}.* BROKEN", done.stdout, re.MULTILINE), done.stdout


def kernels_imported(path: Path, tree: ast.Module) -> list[str]:
    """The kernels of operators that a file imports, unless it builds stages or is one of the kernels itself."""
    if path.stem.startswith("build") or "kernels" in {*path.parts, path.stem}:
        return []
    named = (name for _, name in imports_of(tree) if name.startswith("penstock.operators."))
    return [name for name in named if "kernels" in name.split(".")]


@pytest.mark.parametrize("path", python_files(SRC / "operators"), ids=label)
def test_only_builders_import_kernels(path: Path) -> None:
    """A driver is given its kernels compiled: it never reaches the functions that write them."""
    assert kernels_imported(path, tree_of(path)) == []


@pytest.mark.parametrize(("name", "found"), [("stage.py", 1), ("build.py", 0), ("kernels/fold.py", 0)])
def test_a_driver_that_imports_kernels_is_found(name: str, found: int) -> None:
    tree = ast.parse("from penstock.operators.rows.kernels import build_rows")
    assert len(kernels_imported(SRC / "operators" / "rows" / name, tree)) == found


def test_a_new_package_must_be_given_its_floor(copy_of_the_source: Path) -> None:
    (copy_of_the_source / "penstock" / "annexe").mkdir()
    (copy_of_the_source / "penstock" / "annexe" / "__init__.py").touch()
    assert run_python(LINT, copy_of_the_source).returncode == 1


def test_importing_penstock_loads_no_heavy_library() -> None:
    done = run_python(f"import penstock, sys; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_running_a_query_loads_neither_spark_nor_another_engine(tmp_path: Path) -> None:
    """The rows come from a file, since pyarrow itself imports pandas when it converts a Python list."""
    (tmp_path / "rows.csv").write_text("t,v\n1,1\n2,2\n3,3\n", encoding="utf-8")
    code = f"""
import penstock as pk, sys
query = pk.scan({str(tmp_path / "rows.csv")!r}, time="t").filter(pk.col("v") > 1).window(pk.tumbling(2))
assert query.agg(s=pk.sum("v")).collect().num_rows == 1
print([name for name in ("duckdb", "pandas", "polars", "pyspark", "sqlglot") if name in sys.modules])
"""
    done = run_python(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
