"""Questions of the sweep and about flights, on few rows: Penstock and Polars give DuckDB's answers."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.answers import agree, normalise
from benchmarks.shapes.command import contenders
from benchmarks.shapes.flights import REPEATED, flight_shapes, tables_of
from benchmarks.shapes.sweeps import Point, points, shapes_of

POINTS = (Point(3_000, 1), Point(3_000, 40, side=10), Point(3_000, 3_000, side=1_000))
HOURS = 24 * 200  # from November into June: daylight saving begins


def flights_like(rows):
    """Make tables with the columns of the package's, some values null."""
    random = np.random.default_rng(3)
    begin = 1_350_000_000 // 3600 * 3600
    hours = (
        pa.array(begin + 3600 * random.integers(0, HOURS, rows))
        .cast(pa.timestamp("s"))
        .cast(pa.timestamp("s", "UTC"))
    )
    flights = pa.table(
        {
            "time_hour": hours,
            "minute": random.integers(0, 60, rows),
            "carrier": random.choice(["AA", "UA", "9E"], rows),
            "origin": random.choice(["EWR", "JFK", "LGA"], rows),
            "tailnum": pa.array(random.choice(["N1", "N22", "N333"], rows), mask=random.random(rows) < 0.1),
            "dep_delay": pa.array(random.integers(-20, 300, rows), mask=random.random(rows) < 0.1),
        }
    )
    weather = pa.table(
        {
            "time_hour": hours.slice(0, rows // 4),
            "origin": random.choice(["EWR", "JFK", "LGA"], rows // 4),
            "temp": random.integers(10, 90, rows // 4).astype(float),
        }
    )
    return tables_of(flights, weather)


SHAPES = {f"{shape.name}, {point.title}": shape for point in POINTS for shape in shapes_of(point)}
SHAPES |= {shape.name: shape for shape in flight_shapes(*flights_like(400))}


@pytest.mark.parametrize("name", SHAPES)
def test_everybody_gives_the_answer_of_duckdb(name):
    answers = [normalise(one.to_table(one.run())) for one in contenders(SHAPES[name], threads=2)]
    assert answers[0].num_rows > 0
    assert all(agree(answer, answers[0]) for answer in answers[1:])


def test_a_sweep_varies_keys_sides_and_rows():
    assert {point.keys for point in points(10_000_000)} == {1, 10, 1_000, 100_000, 1_000_000}
    assert {point.side for point in points(10_000_000)} == {1, 10, 100, 1_000}
    assert {point.rows for point in points(10_000_000)} == {100_000, 1_000_000, 10_000_000}
    assert {point.rows for point in points(1_000_000)} == {100_000, 1_000_000}


def test_flights_are_repeated_in_order_of_time():
    flights, weather = flights_like(40)
    assert flights.num_rows == 40 * REPEATED
    assert all((np.diff(table["ts"].to_numpy()) >= np.timedelta64(0)).all() for table in (flights, weather))
