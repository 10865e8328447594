"""Make the generic physical plan of a program: complete before any row is read.

Each temporal object becomes one node, or a few: rows that an operator reads ready-made, the operator itself,
and the fields over its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.analysis.graph import needs_arrival, read_by_time
from penstock.analysis.panes import in_panes, order_of_keys_is_seen, pane_obstacle, regular
from penstock.analysis.positions import why_not
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.physical import choose_join, choose_signals, choose_window, watermark_rules
from penstock.physical import nodes as ph
from penstock.physical.choose_window import (
    HELD_STATES,
    AlgorithmChoice,
    choices,
    keyed_states,
    may_hold_states,
    preferred,
)
from penstock.physical.nodes import POSITIONAL_SIGNALS, Settings
from penstock.physical.order_conjuncts import guessed_order, show_order
from penstock.physical.split_filters import SplitFilter, conjunct_costs, split_filter
from penstock.physical.split_windows import (
    SplitWindow,
    columns_kept,
    fields_over_rows,
    fields_over_windows,
    fits_emission,
    result_columns,
    split_results,
    split_rolling,
    split_window,
    without_time,
)
from penstock.physical.verify import verify
from penstock.plan.nodes import Source
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, Keys


def physical(program: ir.Program, sources: Sequence[Source], mode: ph.Mode, settings: Settings) -> ph.Plan:
    """Choose an operator and its algorithms for every object of a program."""
    declared = {source.name: source for source in sources}
    builder = _Builder(program, declared, mode, settings, choices(program, settings.aggregator))
    nodes = tuple(node for this in program.objects for node in builder.nodes(this))
    return verify(ph.Plan(nodes, program.output, mode))


@dataclass(frozen=True)
class _Builder:
    program: ir.Program
    sources: dict[str, Source]
    mode: ph.Mode
    settings: Settings
    algorithms: dict[str, tuple[AlgorithmChoice, ...]]

    def nodes(self, this: ir.Object) -> list[ph.Node]:
        match this.body:
            case ir.Input() as body:
                return [self._scan(this, body)]
            case jn.Table(name=table):
                return [ph.Node(this.name, (), ph.TableInput(table), this.schema, None, ph.Follows())]
            case ir.Samples() as body:
                return self._rows(this.name, body, self.program[body.source], this)
            case ir.Reduce() as body if in_panes(body, self.program):
                return self._panes(this, body)
            case ir.Reduce() | ir.Attach() | ir.Apply() | ir.Lookback():
                return self._sorted(this)
            case jn.Join() | jn.Asof() as body:
                return [self._join(this, body)]
            case jn.RollingJoin() as body:
                return self._rolling_join(this, body)
            case ir.Merge(sources=sources):
                return [ph.Node(this.name, sources, ph.Union(), this.schema, this.time, ph.Follows())]
            case ir.Distinct() as body:
                return [_distinct(this, body)]
            case ir.Top(source=source, k=k, by=by, ties=ties):
                return [_node(this, (source,), ph.TopK(k, by, ties), ph.OldestOpenWindow())]
            case ir.Signals() as body:
                return [self._signals(this, body)]

    # -- rows ----------------------------------------------------------------------------------------

    def _scan(self, this: ir.Object, body: ir.Input) -> ph.Node:
        source = self.sources[body.stream]
        op = ph.Scan(
            body.stream,
            body.sequence,
            source.lateness,
            source.on_bad,
            not this.time.implied or _needs_stored_time(this, self.program),
            needs_arrival(body.stream, self.program),
        )
        return _node(this, (), op, ph.Follows())

    def _rows(self, name: str, body: ir.Samples, source: ir.Object, result: ir.Object) -> list[ph.Node]:
        """Filter and compute rows; what Arrow computes, after the filter that kernels compute."""
        split = split_filter(name, body.where, [field.expr for field in body.fields], source, self.settings)
        if split is None:
            return [self._rows_node(name, body, source, result)]
        after = ir.Samples(split.passed.name, split.rest, body.fields)
        rows = self._rows_node(name, after, split.passed, result)
        return [self._passed(split, source), rows]

    def _passed(self, split: SplitFilter, source: ir.Object) -> ph.Node:
        node = self._rows_node(split.passed.name, split.samples, source, split.passed)
        return replace(node, choices=(split.choice, *node.choices))

    def _rows_node(self, name: str, body: ir.Samples, source: ir.Object, result: ir.Object) -> ph.Node:
        host = HostColumns(source.schema)
        for expr in (*(() if body.where is None else (body.where,)), *(field.expr for field in body.fields)):
            host.value(expr)
        where = () if body.where is None else tuple(conjuncts(body.where))
        op = ph.Rows(where, body.fields, (*host.members, *host.fields))
        return ph.Node(
            name,
            (body.source,),
            op,
            result.schema,
            result.time,
            watermark_rules.of_rows(body, source, result),
            _host(host),
        )

    # -- windows -------------------------------------------------------------------------------------

    def _panes(self, this: ir.Object, body: ir.Reduce) -> list[ph.Node]:
        source = self.program[body.source]
        if fits_emission(body, source):
            return self._filtered_panes(this, body, this)
        reduce, plain, after = split_results(this, body, source)
        return [*self._filtered_panes(plain, reduce, this), *self._rows(this.name, after, plain, this)]

    def _filtered_panes(self, result: ir.Object, body: ir.Reduce, this: ir.Object) -> list[ph.Node]:
        """Aggregate rows in panes; what Arrow computes, after the filter that kernels compute."""
        source = self.program[body.source]
        reductions = [
            expr
            for reduction in body.reductions
            for expr in (*reduction.args, reduction.where)
            if expr is not None
        ]
        bounds = map(ex.Column, WINDOW_BOUNDS if isinstance(body.domain, CarriedWindow) else ())
        values = [*(key.expr for key in body.keys), *reductions, *bounds]
        split = split_filter(result.name, body.where, values, source, self.settings)
        if split is None:
            return [self._pane_aggregate(result, body, this, source)]
        after = replace(body, source=split.passed.name, where=split.rest)
        return [self._passed(split, source), self._pane_aggregate(result, after, this, split.passed)]

    def _pane_aggregate(
        self, result: ir.Object, body: ir.Reduce, this: ir.Object, source: ir.Object
    ) -> ph.Node:
        chosen = self.algorithms.get(this.name, ())
        table = choose_window.key_table(body, source.schema)
        op = ph.PaneAggregate(
            body.domain,
            body.keys,
            table.taken,  # type: ignore[arg-type]
            "private",
            preferred(body.domain, self.settings.aggregator),
            choose_window.reductions_of(body.reductions, source.schema, chosen),
            body.where,
            body.fields,
            body.having,
            body.strict,
            order=_first_order(body.where, source.schema),
        )
        sharing = ph.Choice(
            "sharing", "private", "each worker has its own table: no worker waits for another"
        )
        made = (
            choose_window.grouping(None),
            table,
            sharing,
            *_order_choice(op.order),
            choose_window.state_layout(body.reductions),
            *choose_window.algorithms(chosen),
        )
        return ph.Node(result.name, (body.source,), op, result.schema, result.time, ph.Follows(), made)

    def _sorted(self, this: ir.Object) -> list[ph.Node]:
        """Rows with their keys and arguments as columns; windows over them sorted; fields over the results."""
        body = this.body
        assert isinstance(body, ir.Reduce | ir.Attach | ir.Apply | ir.Lookback)
        source = self.program[body.source]
        made = split_window(this, source, columns_kept(this, source))
        if _leaves_time_out(body, source, made):
            ready = self._rows(
                made.ready.name, without_time(made), source, replace(made.ready, time=source.time)
            )
        else:
            ready = self._rows(made.ready.name, made.samples, source, made.ready)
        if isinstance(body, ir.Apply):
            output = ph.Apply(body.function, tuple(source.schema.names))
            return [*ready, self._sorted_windows(this, this, body, made, output)]
        chosen = self.algorithms.get(this.name, ())
        if isinstance(body, ir.Reduce):
            plain, after = fields_over_windows(this, body, made)
            windows = self._sorted_windows(this, plain, body, made, "aggregate")
        elif isinstance(body, ir.Attach):
            plain, after = fields_over_rows(this, body, made)
            windows = self._sorted_windows(this, plain, body, made, "attach")
        else:
            plain, after = fields_over_rows(this, body, made)
            reductions = choose_window.reductions_over_columns(made.reductions, chosen)
            held = self._held(body)
            op = ph.LookBack(body.spans, made.keys, reductions, held.taken)  # type: ignore[arg-type]
            windows = _node(plain, (made.ready.name,), op, ph.Follows(), _kept(held, chosen))
        return [*ready, windows, *self._rows(this.name, after, plain, this)]

    def _sorted_windows(
        self,
        this: ir.Object,
        result: ir.Object,
        body: ir.Reduce | ir.Attach | ir.Apply,
        made: SplitWindow,
        output: Literal["aggregate", "attach"] | ph.Apply,
    ) -> ph.Node:
        chosen, held = self.algorithms.get(this.name, ()), self._held(body)
        op = ph.SortedWindows(
            body.domain,
            made.keys,
            choose_window.reductions_over_columns(made.reductions, chosen),
            output,
            isinstance(body, ir.Reduce) and order_of_keys_is_seen(body, self.program),
            read_by_time(this.name, self.program),
            held.taken,  # type: ignore[arg-type]
        )
        kept = _kept(held, chosen) if may_hold_states(body) else choose_window.algorithms(chosen)
        grouping = () if held.taken == HELD_STATES else (choose_window.grouping(self._obstacle(body)),)
        choices = (*grouping, *kept)
        return _node(result, (made.ready.name,), op, watermark_rules.of_windows(body), choices)

    def _held(self, body: ir.Body) -> ph.Choice:
        return keyed_states(body, self.program, self.settings.aggregator, self.mode)

    def _obstacle(self, body: ir.Reduce | ir.Attach | ir.Apply) -> str:
        found = pane_obstacle(body, self.program) if isinstance(body, ir.Reduce) else None
        return found or "the result needs the rows of a window, not only their states"

    # -- two inputs ----------------------------------------------------------------------------------

    def _join(self, this: ir.Object, body: jn.Join | jn.Asof) -> ph.Node:
        left, right = self.program[body.left], self.program[body.right]
        inputs = left.name, right.name
        if isinstance(body, jn.Asof):
            nearest = ph.Nearest(body.direction, body.tolerance, body.exact)
            op = self._lazy_join(nearest, body.on, "merge", result_columns(body))
            reason = "both sides are in order of time: the nearest right row of a key is found by one merge"
            rows_held = choose_join.held_rows(left.schema, right.schema, None, self.mode)
            choices = ph.Choice("matching", "merge", reason), rows_held
            op = replace(op, held=rows_held.taken)  # type: ignore[arg-type]
            return _node(this, inputs, op, watermark_rules.of_asof(body), choices)
        eager = choose_join.is_eager(body) and self.mode == "unbounded"
        made = choose_join.join_choices(body, left, right, self.mode)
        held = next((choice.taken for choice in made if choice.what == "held"), choose_join.SORTED)
        op = ph.Join(
            body.pairing,
            body.on,
            body.how,
            body.algorithm,
            body.optimise,
            eager,
            self.mode == "unbounded",
            body.where,
            result_columns(body),
            held,  # type: ignore[arg-type]
        )
        return _node(this, inputs, op, watermark_rules.of_join(body), made)

    def _lazy_join(
        self, pairing: ph.Nearest | ph.Around, on: Keys, algorithm: str, columns: tuple[ph.JoinColumn, ...]
    ) -> ph.Join:
        return ph.Join(
            pairing,
            on,
            "left",
            algorithm,
            "throughput",
            eager=False,
            paced=self.mode == "unbounded",
            residual=None,
            columns=columns,
        )

    def _rolling_join(self, this: ir.Object, body: jn.RollingJoin) -> list[ph.Node]:
        left, right = self.program[body.left], self.program[body.right]
        made, chosen = split_rolling(this, body, left, right), self.algorithms.get(this.name, ())
        reductions = choose_window.reductions_over_columns(made.reductions, chosen)
        around = ph.Around(body.within.lo, body.within.hi, reductions)
        held = self._held_by_rolling(body, left, made.ready, right)
        op = replace(self._lazy_join(around, body.on, "ranges", ()), held=held.taken)  # type: ignore[arg-type]
        in_lists = held.taken == choose_join.LISTS
        choices = (held,) if in_lists else (held, *choose_window.algorithms(chosen))
        rule = ph.Lags(max(body.within.hi, 0)) if body.within.hi > 0 else ph.Follows()
        return [
            *self._rows(made.ready.name, made.samples, right, made.ready),
            _node(made.plain, (left.name, made.ready.name), op, rule, choices),
            *self._rows(this.name, made.fields, made.plain, this),
        ]

    def _held_by_rolling(
        self, body: jn.RollingJoin, left: ir.Object, ready: ir.Object, right: ir.Object
    ) -> ph.Choice:
        held = choose_join.held_states(body, left, ready, right, self.mode)
        if held.taken != choose_join.LISTS or self.settings.aggregator is None:
            return held
        reason = f"{self.settings.aggregator} was requested, which reduces rows"
        return ph.Choice("held", choose_join.SORTED, reason, (ph.Rejected(choose_join.LISTS, reason),))

    # -- signals -------------------------------------------------------------------------------------

    def _signals(self, this: ir.Object, body: ir.Signals) -> ph.Node:
        inputs = [(self.program[name].schema, self.program[name].time) for name in body.sources]
        chosen = choose_signals.algorithms(body.program, self.settings.aggregator)
        algorithms = tuple(tuple(reduction.algorithm for reduction in several) for several in chosen)
        off = POSITIONAL_SIGNALS in self.settings.off
        obstacle = "switched off" if off else why_not(body.program, inputs)
        held = choose_signals.held(body.program, obstacle, self.settings.aggregator, self.mode)
        how: Literal["positional", "change-to-change"] = "change-to-change" if obstacle else "positional"
        op = ph.Signals(body.program, how, algorithms, held.taken)  # type: ignore[arg-type]
        made = choose_signals.evaluation(body.program, obstacle, chosen)
        return _node(this, body.sources, op, ph.OldestOpenWindow(), (*made, held) if obstacle else made)


# --- nodes ----------------------------------------------------------------------------------------------


def _node(
    this: ir.Object,
    inputs: tuple[str, ...],
    op: ph.Op,
    rule: ph.WatermarkRule,
    made: tuple[ph.Choice, ...] = (),
) -> ph.Node:
    time: Time = this.time
    return ph.Node(this.name, inputs, op, this.schema, time, rule, made)


def _distinct(this: ir.Object, body: ir.Distinct) -> ph.Node:
    op = ph.Distinct(body.subset, body.keep, body.within)
    return _node(this, (body.source,), op, watermark_rules.of_distinct(body))


def _host(host: HostColumns) -> tuple[ph.Choice, ...]:
    """Name what Arrow computes, and why a kernel does not."""
    reason = "kernels compute neither texts beyond equality nor this type"
    return tuple(
        ph.Choice(f"column {name}", f"Arrow computes {show_expr(expr)}", reason)
        for expr, name in (host.members | host.fields).items()
    )


# --- implied times --------------------------------------------------------------------------------------


def _needs_stored_time(this: ir.Object, program: ir.Program) -> bool:
    """Return whether an input's time must be a column: its rows are output, merged, joined or deduplicated unchanged.

    Kernels compute an implied time from row numbers.
    """
    readers = [obj.body for obj in program.objects if this.name in ir.sources_of(obj.body)]
    return program.output == this.name or any(
        isinstance(body, ir.Merge | ir.Distinct | ir.Top | jn.Join | jn.Asof | jn.RollingJoin)
        for body in readers
    )


def _leaves_time_out(body: ir.Body, source: ir.Object, made: SplitWindow) -> bool:
    """Return whether sorted windows need no column of times: they follow from row numbers, and few are read."""
    read = {name for reduction in made.reductions for name in (*reduction.args, reduction.where)}
    return (
        isinstance(body, ir.Reduce)
        and regular(body)
        and body.where is None
        and isinstance(source.body, ir.Input)
        and source.time.implied
        and source.time.column not in read
    )


def _kept(held: ph.Choice, chosen: tuple[AlgorithmChoice, ...]) -> tuple[ph.Choice, ...]:
    """The choice of what is held, and the algorithms over rows if those are."""
    return (held,) if held.taken == HELD_STATES else (held, *choose_window.algorithms(chosen))


def _first_order(where: ex.Expr | None, schema: pa.Schema) -> ph.FilterOrder | None:
    """The order of a kernel's conjuncts until rows were seen."""
    if where is None:
        return None
    host = HostColumns(schema)
    inside = host.value(where)
    return guessed_order(conjunct_costs(inside, host.schema))


def _order_choice(order: ph.FilterOrder | None) -> tuple[ph.Choice, ...]:
    if order is None:
        return ()
    reason = "expensive conditions are computed for rows that pass those expected to drop most rows"
    seen = ph.Assumption("shares are as a planner expects", "the cheapest order for the rows seen")
    return (ph.Choice("filter order", show_order(order), reason, (), (seen,)),)
