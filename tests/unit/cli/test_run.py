"""`penstock run` and `penstock explain` on a user's file."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

EXPECTED = {"page": ["/", "/pay"], "n": [3, None]}


def test_a_query_is_collected_and_printed(penstock, queries):
    result = penstock("run", f"{queries}:views")
    assert result.exit_code == 0
    assert all(text in result.output for text in ("page", "/pay", "null", "2 rows"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("from q import Stub\n\nonly = Stub(page=['/only'])\n\ndef other(day: str): ...\n", "/only"),
        ("from q import Stub\n\ndef only():\n    return Stub(page=['/made'])\n", "/made"),
    ],
)
def test_a_file_alone_means_its_one_query_or_else_its_one_function(penstock, queries, text, printed):
    file = queries.with_name("sole.py")
    file.write_text(text)
    assert printed in penstock("run", file).output


def test_a_file_of_several_queries_needs_a_name(penstock, queries):
    result = penstock("run", queries)
    assert result.exit_code == 2
    assert "name the query" in result.stderr
    assert "broken, daily, fails, many, views" in result.stderr


def test_only_the_first_rows_are_printed(penstock, queries):
    result = penstock("run", f"{queries}:many", "--limit", "3", "--rows", "1000")
    assert "1,000 rows, 997 not shown" in result.output
    assert " 2" in result.output
    assert " 3\n" not in result.output


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        (".parquet", pa.parquet.read_table),
        (".arrow", pa.feather.read_table),
        (".CSV", pa.csv.read_csv),
    ],
)
def test_the_output_format_follows_the_file_name(penstock, queries, tmp_path, suffix, read):
    target = tmp_path / f"out{suffix}"
    result = penstock("run", f"{queries}:views", "--output", target)
    assert result.exit_code == 0
    assert read(target).to_pydict() == EXPECTED


def test_json_is_one_object_a_line_with_iso_times(penstock, queries, tmp_path):
    target = tmp_path / "out.json"
    penstock("run", f"{queries}:daily", "--day", "2026-01-02", "-o", target)
    (line,) = target.read_text().splitlines()
    assert json.loads(line) == {"day": "2026-01-02", "top": 10, "exact": True, "how": "a", "tag": None}


def test_an_unknown_output_format_is_refused_before_the_query_runs(penstock, queries, tmp_path):
    result = penstock("run", f"{queries}:broken", "-o", tmp_path / "out.xls")
    assert result.exit_code == 2
    assert "cannot determine the format" in result.stderr


def test_a_file_that_cannot_be_written_is_an_error(penstock, queries, tmp_path):
    result = penstock("run", f"{queries}:views", "-o", tmp_path / "nowhere" / "out.csv")
    assert result.exit_code == 1
    assert "cannot write" in result.stderr


def test_flags_come_from_the_annotated_arguments(penstock, queries):
    flags = ["--day", "2026-01-02", "--top", "3", "--no-exact", "--how", "b", "--tag", "x y"]
    result = penstock("run", f"{queries}:daily", *flags)
    assert all(text in result.output for text in ("2026-01-02", " 3 ", "False", " b ", "x y"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--day"),
        (["--day", "tomorrow"], "'tomorrow' is not a valid date"),
        (["--day", "2026-01-02", "--top", "many"], "'many' is not a valid int"),
        (["--day", "2026-01-02", "--how", "c"], "'c' is not one of a, b"),
        (["--day", "2026-01-02", "--colour", "red"], "--colour"),
    ],
)
def test_flags_that_do_not_fit_are_misuse_with_the_usage(penstock, queries, flags, message):
    result = penstock("run", f"{queries}:daily", *flags)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "usage: q.py:daily" in result.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":none", "defines no 'none'; queries and functions there: broken, daily, fails, many, views"),
        (":number", "is not a query but int"),
        ("", "does not name a query: write FILE.py:NAME"),
        (".gone:views", "there is no file"),
    ],
)
def test_a_target_that_is_no_query_is_misuse(penstock, queries, name, message):
    target = str(queries) + name if name else "views"
    result = penstock("run", target)
    assert result.exit_code == 2
    assert message in result.stderr


def test_flags_for_something_that_is_no_function_are_misuse(penstock, queries):
    result = penstock("run", f"{queries}:views", "--day", "2026-01-02")
    assert result.exit_code == 2
    assert "takes no flags" in result.stderr


def test_a_function_that_raises_is_reported_with_its_line(penstock, queries):
    result = penstock("run", f"{queries}:fails")
    line = queries.read_text().splitlines().index("    return 1 // 0") + 1
    assert result.exit_code == 1
    assert f"line {line}: ZeroDivisionError" in result.stderr


def test_a_file_that_does_not_parse_is_reported(penstock, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("views = (\n")
    result = penstock("run", f"{bad}:views")
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr
    assert "Traceback" not in result.output


def test_a_file_may_import_its_neighbours(penstock, queries):
    (queries.parent / "beside_the_query.py").write_text("from q import views\n")
    user = queries.parent / "user.py"
    user.write_text("from beside_the_query import views\n")
    assert penstock("run", f"{user}:views").exit_code == 0


def test_explain_prints_brackets_as_they_are(penstock, queries):
    assert penstock("explain", f"{queries}:views").stdout == "stage plan of [bold]['n', 'page'][/bold]\n"


def test_explain_shows_the_stage_asked_for(penstock, queries):
    assert penstock("explain", f"{queries}:views", "--stage", "llvm").stdout.startswith("stage llvm")


def test_explain_refuses_a_stage_that_does_not_exist(penstock, queries):
    assert penstock("explain", f"{queries}:views", "--stage", "jvm").exit_code == 2


def test_explain_takes_the_flags_of_the_function(penstock, queries):
    result = penstock("explain", f"{queries}:daily", "--day", "2026-01-02")
    assert "'day'" in result.stdout
