"""`penstock sql` over files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk

QUERY = "select timestamp, k, sum(v) as total from events [range 10] group by k"


@pytest.fixture
def events(tmp_path):
    path = tmp_path / "events.parquet"
    ts = pa.array([0, 3, 12, 13], pa.timestamp("s"))
    pq.write_table(pa.table({"ts": ts, "k": ["a", "b", "a", "a"], "v": [1, 2, 3, 4]}), path)
    return path


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("k,name\na,Anna\nb,Bob\n")
    return path


def test_a_query_over_a_file_is_printed(penstock, events):
    result = penstock("sql", QUERY, "--stream", f"events={events}", "--time", "ts")
    assert result.exit_code == 0
    assert all(text in result.output for text in ("total", "1970-01-01 00:00:20", " 7", "3 rows"))


def test_the_result_is_written_to_a_file(penstock, events, tmp_path):
    target = tmp_path / "out.parquet"
    result = penstock("sql", QUERY, "--stream", f"events={events}", "--time", "events=ts", "--out", target)
    assert result.exit_code == 0
    assert pq.read_table(target)["total"].to_pylist() == [1, 2, 7]


def test_a_query_can_stand_in_a_file_and_join_a_table(penstock, events, names, tmp_path):
    (tmp_path / "q.sql").write_text(
        "select name, v from events join names on events.k = names.k where v > 1\n"
    )
    flags = ("--stream", f"events={events}", "--time", "ts", "--table", f"names={names}", "--threads", "1")
    result = penstock("sql", tmp_path / "q.sql", *flags, "--limit", "1")
    assert result.exit_code == 0
    assert "Bob" in result.output
    assert "3 rows, 2 not shown" in result.output


def test_a_query_is_explained_instead_of_run(penstock, events):
    result = penstock("sql", QUERY, "--stream", f"events={events}", "--time", "ts", "--explain")
    assert result.exit_code == 0
    assert "total = sum(v)" in result.output


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--stream", "events"), 2, "write NAME=PATH"),
        (("--stream", "events=EVENTS"), 2, "which column of 'events' is its time"),
        (("--stream", "events=EVENTS", "--time", "a", "--time", "b"), 2, "once for all streams"),
        (("--stream", "events=EVENTS", "--time", "other=b"), 2, "that --stream gives"),
        (("--stream", "events=EVENTS", "--stream", "events=EVENTS", "--time", "ts"), 2, "one name twice"),
        (("--stream", "events=EVENTS", "--table", "events=EVENTS", "--time", "ts"), 2, "have one name"),
        (
            ("--stream", "clicks=EVENTS", "--time", "ts"),
            1,
            "line 1, column 43, at 'events': there is no stream",
        ),
        (("--stream", "events=EVENTS", "--time", "ts", "-o", "out.xls"), 2, "cannot determine the format"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(penstock, events, flags, code, message):
    result = penstock("sql", QUERY, *(flag.replace("EVENTS", str(events)) for flag in flags))
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_file_of_sql_that_is_not_there_is_an_error(penstock):
    assert "cannot read" in penstock("sql", "nowhere.sql").stderr


def test_debug_lets_errors_of_sql_through(penstock):
    assert isinstance(penstock("--debug", "sql", "select").exception, pk.SqlError)
