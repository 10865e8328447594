"""The physical plan of every operator: as text in tests/fixtures/physical/plans.txt, and equal to the stages that run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from penstock.api.stream import Stream
from penstock.compile import Compiled, compile_plan
from penstock.operators.distinct.stage import DistinctStage
from penstock.operators.joins.eager import EagerJoinStage
from penstock.operators.joins.incremental import IncrementalJoinStage
from penstock.operators.joins.lookup import LookupStage, TableStage
from penstock.operators.joins.stage import JoinStage
from penstock.operators.joins.window_runs import WindowJoinStage
from penstock.operators.look_back.incremental import IncrementalLookBack
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.operators.rows.stage import RowsStage
from penstock.operators.signals.positional.stage import DenseStage
from penstock.operators.signals.stage import SignalStage
from penstock.operators.sorted_windows.incremental import IncrementalCounts, IncrementalSessions
from penstock.operators.sorted_windows.listed_counts import ListedCounts
from penstock.operators.sorted_windows.sessions import SessionStage
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.operators.topk.stage import TopKStage
from penstock.operators.union.stage import MergeStage
from penstock.physical import nodes as ph
from penstock.physical.show import show
from penstock.plan import nodes as pl
from penstock.runtime.engine import Engine
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context
from penstock.runtime.source_stage import SourceStage
from penstock.types.windows import Count, Lookup, Session
from tests.strategies import plans
from tests.unit.physical.cases import CASES


def stage_type(op: ph.Op) -> type:
    """The driver that runs an operator."""
    match op:
        case ph.Join(pairing=Lookup()):
            return LookupStage
        case ph.Join(eager=True):
            return EagerJoinStage
        case ph.Join(held="sorted runs"):
            return WindowJoinStage
        case ph.Join(held="lists per key"):
            return IncrementalJoinStage
        case ph.Signals(evaluation="positional"):
            return DenseStage
        case ph.SortedWindows(window=Session(), held="states per key"):
            return IncrementalSessions
        case ph.SortedWindows(window=Count(), held="states per key"):
            return IncrementalCounts
        case ph.SortedWindows(window=Session()):
            return SessionStage
        case ph.SortedWindows(held="lists of rows per key"):
            return ListedCounts
        case ph.LookBack(held="states per key"):
            return IncrementalLookBack
        case ph.Distinct(within=within):
            return DistinctStage if within is None else SortedWindowStage
        case _:
            return {
                ph.Scan: SourceStage,
                ph.TableInput: TableStage,
                ph.Rows: RowsStage,
                ph.PaneAggregate: WindowStage,
                ph.SortedWindows: SortedWindowStage,
                ph.LookBack: SortedWindowStage,
                ph.Join: JoinStage,
                ph.Signals: SignalStage,
                ph.TopK: TopKStage,
                ph.Union: MergeStage,
            }[type(op)]


def assert_built(compiled: Compiled, mode: ph.Mode) -> None:
    """The stages of a pipeline are the nodes of its plan, each the driver of its operator."""
    plan = compiled.physical(mode)
    context = Context(Engine(threads=1), Metrics(), mode == "bounded")
    specs = compiled.pipeline("interpret", mode).specs
    stages = [(spec.name, spec.inputs, type(spec.make(context))) for spec in specs]
    assert [(node.id, node.inputs, stage_type(node.op)) for node in plan.nodes] == stages


def test_the_physical_plans_of_all_operators(golden: Callable[[str, str], None]) -> None:
    sections = [
        f"-- {name}\n{show(compile_plan(query.plan).physical('unbounded'))}" for name, query in CASES.items()
    ]
    golden("physical/plans.txt", "\n\n".join(sections) + "\n")


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
@pytest.mark.parametrize("query", CASES.values(), ids=CASES)
def test_each_node_is_a_stage(query: Stream, mode: ph.Mode) -> None:
    assert_built(compile_plan(query.plan), mode)


@given(plans())
def test_the_nodes_of_any_plan_are_the_stages(plan: pl.Plan) -> None:
    for mode in ("bounded", "unbounded"):
        assert_built(compile_plan(plan), mode)
