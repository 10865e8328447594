"""The application queries of SABER (appendix A of the paper) in SQL, and seeded streams to run them on.

SG3 joins on nothing but the comparison: the global average has no house, though the paper's text names one. LRB1 reads positions, whose
segments the others count in; there is one row per reported second in all streams.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import penstock as pk

CM1 = """
select timestamp, category, sum(cpu) as totalCpu
from TaskEvents [range 60 slide 1]
group by category
"""

CM2 = """
select timestamp, jobId, avg(cpu) as avgCpu
from TaskEvents [range 60 slide 1]
where eventType == 1
group by jobId
"""

SG1 = """
select timestamp, AVG (value) as globalAvgLoad
from SmartGridStr [range 3600 slide 1]
"""

SG2 = """
select timestamp, plug, household, house,
      AVG (value) as localAvgLoad
from SmartGridStr [range 3600 slide 1]
group by plug, household, house
"""

SG3 = """
(
select L.timestamp, L.plug, L.household,
      L.house
from LocalLoadStr [range 1 slide 1] as L,
      GlobalLoadStr [range 1 slide 1] as G
where L.localAvgLoad > G.globalAvgLoad
) as R
--
select timestamp, house, count(*) as count
from R
group by house
"""

LRB1 = """
select timestamp, vehicle, speed,
      highway, partition, direction,
      (position/5280) as segment
from PosSpeedStr [range unbounded]
"""

LRB2 = """
select distinct
      L.timestamp, L.vehicle, L.speed, L.highway, L.partition,
      L.direction, L.segment
from SegSpeedStr [range 30 slide 1] as A,
      SegSpeedStr [partition by vehicle rows 1] as L
where A.vehicle == L.vehicle
"""

LRB3 = """
select timestamp, highway, direction, segment,
      AVG(speed) as avgSpeed
from SegSpeedStr [range 300 slide 1]
group by highway, direction, segment
having avgSpeed < 40.0
"""

LRB4 = """
(
select timestamp, vehicle, highway, direction, segment,
      count(*)
from SegSpeedStr [range 30 slide 1]
group by highway, direction, segment, vehicle
) as R
--
select timestamp, highway, direction, segment,
      count(vehicle) as numVehicles
from R
group by highway, direction, segment
"""


def _stream(name: str, columns: dict[str, pa.Array]) -> pk.Stream:
    return pk.from_arrow(pa.table(columns), time="timestamp", name=name)


def _times(rng: np.random.Generator, rows: int, seconds: int) -> pa.Array:
    return pa.array(np.sort(rng.integers(0, seconds, rows)), pa.int64())


def task_events(rows: int = 2_000, seconds: int = 200, seed: int = 1) -> pk.Stream:
    """Events of a cluster's tasks; time in seconds."""
    rng = np.random.default_rng(seed)
    whole = {
        name: rng.integers(0, most, rows) for name, most in (("jobId", 40), ("eventType", 3), ("category", 4))
    }
    columns = {name: pa.array(values, pa.int64()) for name, values in whole.items()}
    return _stream(
        "TaskEvents", {"timestamp": _times(rng, rows, seconds), **columns, "cpu": pa.array(rng.random(rows))}
    )


def smart_grid(rows: int = 1_500, seconds: int = 150, seed: int = 2) -> pk.Stream:
    """Loads of plugs in households of houses."""
    rng = np.random.default_rng(seed)
    places = {
        name: pa.array(rng.integers(0, most, rows), pa.int32())
        for name, most in (("plug", 3), ("household", 2), ("house", 4))
    }
    loads = pa.array(rng.random(rows) * 100)
    return _stream("SmartGridStr", {"timestamp": _times(rng, rows, seconds), "value": loads, **places})


def positions(rows: int = 1_500, seconds: int = 200, seed: int = 3) -> pk.Stream:
    """Where vehicles are, in feet, and how fast."""
    rng = np.random.default_rng(seed)
    sizes = (("vehicle", 50), ("highway", 2), ("partition", 3), ("direction", 2), ("position", 5 * 5280))
    whole = {name: pa.array(rng.integers(0, most, rows), pa.int32()) for name, most in sizes}
    speeds = pa.array(rng.random(rows) * 80)
    return _stream("PosSpeedStr", {"timestamp": _times(rng, rows, seconds), "speed": speeds, **whole})


def queries() -> dict[str, pk.Stream]:
    """Make all nine, each over what it reads: streams, or the results of others."""
    tasks, grid, roads = task_events(), smart_grid(), positions()
    first, second = pk.sql(SG1, SmartGridStr=grid), pk.sql(SG2, SmartGridStr=grid)
    segments = pk.sql(LRB1, PosSpeedStr=roads)
    return {
        "CM1": pk.sql(CM1, TaskEvents=tasks),
        "CM2": pk.sql(CM2, TaskEvents=tasks),
        "SG1": first,
        "SG2": second,
        "SG3": pk.sql(SG3, LocalLoadStr=second, GlobalLoadStr=first),
        "LRB1": segments,
        **{
            name: pk.sql(text, SegSpeedStr=segments)
            for name, text in (("LRB2", LRB2), ("LRB3", LRB3), ("LRB4", LRB4))
        },
    }


if __name__ == "__main__":
    for each, query in queries().items():
        print(each, query.collect().num_rows)  # noqa: T201 - an example shows what it does
