"""The generators: seeded, ordered, with the columns and spreads the workloads define."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.workloads import EVENT_TYPES, EventType, Skew, YsbKeyed, ysb_keyed
from penstock.cli.demo import clicks

SMALL = YsbKeyed(rows=30_000, keys=50)


def column(table, name):
    return table.column(name).to_numpy()


def test_ysb_keyed_has_the_columns_of_the_workload():
    assert ysb_keyed(SMALL).schema == pa.schema(
        {
            "ts": pa.timestamp("us"),
            "user_id": pa.int64(),
            "page_id": pa.int64(),
            "campaign_id": pa.int64(),
            "event_type": pa.int32(),
            "value": pa.int64(),
        }
    )


def test_rows_are_three_microseconds_apart_in_time_order():
    times = column(ysb_keyed(SMALL), "ts").astype(np.int64)
    assert set(np.diff(times)) == {3}


def test_the_same_seed_gives_the_same_table_and_another_seed_another():
    assert ysb_keyed(SMALL) == ysb_keyed(SMALL)
    assert ysb_keyed(SMALL) != ysb_keyed(replace(SMALL, seed=2))


@pytest.mark.parametrize("skew", Skew)
def test_keys_lie_in_the_declared_range(skew):
    keys = column(ysb_keyed(replace(SMALL, skew=skew)), "campaign_id")
    assert keys.min() >= 0
    assert keys.max() < SMALL.keys


def test_uniform_keys_all_occur_and_none_dominates():
    counts = np.bincount(column(ysb_keyed(SMALL), "campaign_id"), minlength=SMALL.keys)
    assert counts.min() > 0
    assert counts.max() < 2 * counts.mean()


def test_zipf_keys_halve_from_the_first_rank_to_the_second():
    keys = column(ysb_keyed(replace(SMALL, skew=Skew.ZIPF)), "campaign_id")
    first, second, *_ = sorted(np.bincount(keys), reverse=True)
    assert first / second == pytest.approx(2, rel=0.1)


def test_a_hot_key_is_the_only_key():
    assert set(column(ysb_keyed(replace(SMALL, skew=Skew.HOT)), "campaign_id")) == {SMALL.keys // 2}


def test_one_key_is_possible_under_every_skew():
    tables = [ysb_keyed(YsbKeyed(rows=10, keys=1, skew=skew)) for skew in Skew]
    assert all(set(column(table, "campaign_id")) == {0} for table in tables)


def test_a_third_of_the_rows_are_views():
    share = np.mean(column(ysb_keyed(SMALL), "event_type") == EVENT_TYPES.index("view"))
    assert share == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("kind", [EventType.STRING, EventType.DICTIONARY])
def test_string_event_types_are_the_names_of_the_integer_ones(kind):
    codes = ysb_keyed(SMALL).column("event_type")
    texts = ysb_keyed(replace(SMALL, event_type=kind)).column("event_type").cast(pa.string())
    assert texts.to_pylist() == [EVENT_TYPES[code] for code in codes.to_pylist()]


def test_the_way_event_types_are_stored_changes_no_other_column():
    plain, strings = (
        ysb_keyed(replace(SMALL, event_type=kind)) for kind in (EventType.INT, EventType.STRING)
    )
    assert plain.drop_columns("event_type") == strings.drop_columns("event_type")


def test_only_purchases_of_the_demo_cost_money():
    table = clicks(20_000)
    paid = table.filter(pc.field("cents") > 0)
    assert set(paid.column("kind").to_pylist()) == {"purchase"}
