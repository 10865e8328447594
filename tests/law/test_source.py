"""Laws about the text of the source: size, forbidden calls, and no trace of this machine."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from pathlib import Path

import pytest

from tests.law.source import ROOT, SRC, dotted, imports_of, label, python_files, tree_of

MAX_LINES = 400
MERGED = "slivers of one subject were merged (decision 120); at most 460 lines, and no other file joins them"
LONG_FILES: dict[str, str] = {  # path: the reason why it may be long
    "src/penstock/algorithms/expressions/host_columns.py": MERGED,
    "src/penstock/algorithms/hash_table/keys.py": MERGED,
    "src/penstock/algorithms/keyed_states/table.py": MERGED,
    "src/penstock/algorithms/sliding/count_slide.py": MERGED,
    "src/penstock/algorithms/sort/kernels.py": MERGED,
    "src/penstock/algorithms/sorted_partitions/frames.py": MERGED,
    "src/penstock/algorithms/sorted_partitions/rows.py": MERGED,
    "src/penstock/api/live.py": MERGED,
    "src/penstock/api/sql/expressions.py": MERGED,
    "src/penstock/codegen/ring_module.py": MERGED,
    "src/penstock/operators/joins/results.py": MERGED,
    "src/penstock/operators/pane_aggregate/kernels/fold_panes.py": MERGED,
    "src/penstock/operators/pane_aggregate/table.py": MERGED,
    "src/penstock/operators/pane_aggregate/worker.py": MERGED,
    "src/penstock/operators/signals/build.py": MERGED,
    "src/penstock/operators/signals/incremental/stage.py": MERGED,
    "src/penstock/operators/signals/positional/kernels/plan.py": MERGED,
    "src/penstock/operators/signals/positional/kernels/reductions.py": MERGED,
    "src/penstock/physical/build.py": MERGED,
    "src/penstock/runtime/adapt/controller.py": MERGED,
    "src/penstock/runtime/buffers.py": MERGED,
    "src/penstock/sources/lake/iceberg.py": MERGED,
    "src/penstock/sources/parquet_decode.py": MERGED,
    "src/penstock/spark/frame.py": MERGED,
    "src/penstock/spark/tasks.py": MERGED,
}

FORBIDDEN_CALLS = {
    "eval": "user text must never run",
    "exec": "user text must never run",
    "compile": "user text must never run",
    "__import__": "user text must never choose a module",
    "os.system": "no shell",
    "os.popen": "no shell",
    "pickle.load": "a pickle runs code when it is read",
    "pickle.loads": "a pickle runs code when it is read",
}
FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}


@pytest.mark.parametrize("path", python_files(), ids=label)
def test_no_file_is_long_without_a_reason(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES or LONG_FILES.get(label(path)), f"{label(path)} has {lines} lines"


@pytest.mark.parametrize("path", LONG_FILES)
def test_a_long_file_has_a_limit_too(path: str) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 460


def test_every_excuse_for_a_long_file_is_still_needed() -> None:
    lines = {label(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name for name in LONG_FILES if lines.get(name, 0) <= MAX_LINES} == set()


def function_lengths() -> list[int]:
    nodes = (node for path in python_files() for node in ast.walk(tree_of(path)))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(function.end_lineno or function.lineno) - function.lineno + 1 for function in functions]


def test_half_of_all_functions_have_at_most_eight_lines_and_few_over_forty() -> None:
    lengths = function_lengths()
    assert statistics.median(lengths) <= 8
    assert sum(length > 40 for length in lengths) <= 0.02 * len(lengths)


def forbidden_in(tree: ast.Module) -> list[tuple[int, str]]:
    """Find calls that run text as code, modules that read code back, and shells."""
    found = [(line, name) for line, name in imports_of(tree) if name.split(".")[0] in FORBIDDEN_MODULES]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in FORBIDDEN_CALLS:
            found.append((node.lineno, dotted(node.func)))
        if any(key.arg == "shell" and ast.unparse(key.value) != "False" for key in node.keywords):
            found.append((node.lineno, "shell="))
    return found


@pytest.mark.parametrize("path", python_files(), ids=label)
def test_no_file_runs_text_as_code_or_reads_pickles(path: Path) -> None:
    assert forbidden_in(tree_of(path)) == []


@pytest.mark.parametrize(
    "code",
    ["eval('1')", "import pickle", "from pickle import loads", "import os; os.system('x')", "f(shell=True)"],
)
def test_the_check_for_forbidden_calls_finds_them(code: str) -> None:
    assert forbidden_in(ast.parse(code))


def tracked_text() -> list[tuple[str, str]]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    paths = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    texts = ((label(path), path.read_bytes()) for path in paths if path.suffix not in {".png", ".parquet"})
    return [(name, raw.decode("utf-8")) for name, raw in texts]


ABSOLUTE = re.compile(r"(?<![\w.])/(?:work|home/\w+|root|Users/\w+)/")


def test_no_tracked_file_names_a_folder_of_some_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    here = "tests/law/test_source.py"
    assert [name for name, text in tracked_text() if ABSOLUTE.search(text) and name != here] == []


def test_no_tracked_file_is_left_with_a_conflict_marker() -> None:
    marker = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    assert [name for name, text in tracked_text() if marker.search(text)] == []


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in python_files()}
    assert [label(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_package_is_marked_as_typed() -> None:
    assert (SRC / "py.typed").exists()
