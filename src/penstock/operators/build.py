"""Build the pipeline of a physical plan: one stage for each node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.operators.distinct.build import distinct
from penstock.operators.joins.build import join
from penstock.operators.joins.lookup import TableStage
from penstock.operators.look_back.build import look_back
from penstock.operators.pane_aggregate.build import pane_aggregate
from penstock.operators.rows.build import rows
from penstock.operators.signals.build import signals
from penstock.operators.sorted_windows.build import sorted_windows
from penstock.operators.topk.stage import top_k
from penstock.operators.union.stage import MergeStage
from penstock.physical import nodes as ph
from penstock.physical.overflows import overflow_message
from penstock.runtime.metrics import JoinReport
from penstock.runtime.session import Context, Pipeline, StageSpec
from penstock.runtime.source_stage import SourceStage
from penstock.runtime.stage import Stage
from penstock.types.arrow import without_column

Make = Callable[[Context], Stage]


def build(
    plan: ph.Plan, schema: pa.Schema, kernel_factory: KernelFactory, reports: dict[str, JoinReport]
) -> Pipeline:
    """Return the pipeline of a plan, whose result has the given columns. Joins add to `reports` for `explain`."""
    specs = [
        StageSpec(
            node.id,
            node.inputs,
            _stage(node, plan, kernel_factory, reports),
            node.op.stream if isinstance(node.op, ph.Scan) else None,
            node.op.table if isinstance(node.op, ph.TableInput) else None,
            partial(overflow_message, node, plan),
        )
        for node in plan.nodes
    ]
    return Pipeline(specs, plan.output, schema)


def _stage(
    node: ph.Node, plan: ph.Plan, kernel_factory: KernelFactory, reports: dict[str, JoinReport]
) -> Make:
    """Return the constructor of the stage that runs a node."""
    match node.op, plan.inputs_of(node):
        case ph.Scan() as op, ():
            return _source(op, node, plan.paths(node.id), kernel_factory)
        case ph.TableInput(), ():
            return lambda context: TableStage()
        case ph.Rows() as op, (given,):
            return rows(op, node, given, plan.paths(node.id), kernel_factory)
        case ph.PaneAggregate() as op, (given,):
            return pane_aggregate(op, node, given, kernel_factory)
        case ph.SortedWindows() as op, (given,):
            return sorted_windows(op, node, given, kernel_factory)
        case ph.LookBack() as op, (given,):
            return look_back(op, node, given, kernel_factory)
        case ph.Signals() as op, inputs:
            return signals(op, node, inputs, kernel_factory)
        case ph.Join() as op, (left, right):
            return join(op, node, left, right, plan.paths(node.id), kernel_factory, reports)
        case ph.Distinct() as op, (given,):
            return distinct(op, node, given, kernel_factory)
        case ph.TopK() as op, (given,):
            return top_k(op, node, given, kernel_factory)
        case ph.Union(), _:
            origins = [plan.streams_behind(name) for name in node.inputs]
            return lambda context: MergeStage(origins)
    raise AssertionError(f"{node.id} has {len(node.inputs)} inputs")


def _source(op: ph.Scan, node: ph.Node, readers: int, kernel_factory: KernelFactory) -> Make:
    time = node.clock
    schema = node.schema if op.stores_time else without_column(node.schema, time.column)
    return lambda context: SourceStage(
        time,
        op.lateness,
        op.on_bad,
        schema,
        readers,
        context.bounded,
        context.metrics,
        op.sequence,
        op.numbered,
        kernel_factory.reader,
    )
