"""Make the generic physical plan of a program: complete before any row is read.

Each temporal object becomes one node, or a few: rows that an operator reads ready-made, the operator itself,
and the fields over its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.analysis.panes import in_panes, pane_obstacle
from penstock.analysis.positions import fits, why_not
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.ir import joins as jn
from penstock.ir import nodes as ir
from penstock.physical import choose_join, choose_window
from penstock.physical import nodes as ph
from penstock.physical.choose_algorithm import Choice as AlgorithmChoice
from penstock.physical.choose_algorithm import choices
from penstock.physical.settings import POSITIONAL_SIGNALS, Settings
from penstock.physical.split_joins import spell_rolling
from penstock.physical.split_results import fits_emission, split_results
from penstock.physical.split_windows import behind_rows, behind_windows, columns_kept, spell
from penstock.physical.verify import verify
from penstock.plan.nodes import Source
from penstock.types.pairing import LEFT_ROW_KINDS, InWindow, Lookup, Within
from penstock.types.time import Time
from penstock.types.windows import Count, Session, TimeWindow, Unbounded, Window


def physical(program: ir.Program, sources: Sequence[Source], mode: ph.Mode, settings: Settings) -> ph.Plan:
    """Choose an operator and its algorithms for every object of a program."""
    builder = _Builder(program, {source.name: source for source in sources}, mode, settings)
    nodes = tuple(node for this in program.objects for node in builder.nodes(this))
    return verify(ph.Plan(nodes, program.output, mode))


@dataclass(frozen=True)
class _Builder:
    program: ir.Program
    sources: dict[str, Source]
    mode: ph.Mode
    settings: Settings

    def nodes(self, this: ir.Object) -> list[ph.Node]:
        match this.body:
            case ir.Input() as body:
                return [self._scan(this, body)]
            case jn.Table(name=table):
                return [ph.Node(this.name, (), ph.TableInput(table), this.schema, None, ph.Follows())]
            case ir.Samples() as body:
                return [self._rows(this.name, body, self.program[body.source], this)]
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

    def _algorithms(self, this: ir.Object) -> tuple[AlgorithmChoice, ...]:
        return choices(self.program, self.settings.aggregator).get(this.name, ())

    # -- rows ----------------------------------------------------------------------------------------

    def _scan(self, this: ir.Object, body: ir.Input) -> ph.Node:
        source = self.sources[body.stream]
        op = ph.Scan(body.stream, body.sequence, source.lateness, source.on_bad, not this.time.implied)
        return _node(this, (), op, ph.Follows())

    def _rows(self, name: str, body: ir.Samples, source: ir.Object, result: ir.Object) -> ph.Node:
        host = HostColumns(source.schema)
        for expr in (*(() if body.where is None else (body.where,)), *(field.expr for field in body.fields)):
            host.value(expr)
        where = () if body.where is None else tuple(conjuncts(body.where))
        op = ph.Rows(where, body.fields, tuple(host.fields))
        return ph.Node(
            name,
            (body.source,),
            op,
            result.schema,
            result.time,
            _rows_time(body, source, result),
            _host(host),
        )

    # -- windows -------------------------------------------------------------------------------------

    def _panes(self, this: ir.Object, body: ir.Reduce) -> list[ph.Node]:
        source = self.program[body.source]
        if fits_emission(body, source):
            return [self._pane_aggregate(this, body, this)]
        reduce, plain, after = split_results(this, body, source)
        return [self._pane_aggregate(plain, reduce, this), self._rows(this.name, after, plain, this)]

    def _pane_aggregate(self, result: ir.Object, body: ir.Reduce, this: ir.Object) -> ph.Node:
        chosen = self._algorithms(this)
        table = choose_window.key_table(body.keys, self.program[body.source].schema)
        op = ph.PaneAggregate(
            body.domain,
            body.keys,
            table.taken,  # type: ignore[arg-type]
            "private",
            choose_window.reductions_of(body.reductions, chosen),
            body.where,
            body.fields,
            body.having,
        )
        sharing = ph.Choice(
            "sharing", "private", "each worker has its own table: no worker waits for another"
        )
        made = (
            choose_window.grouping(None),
            table,
            sharing,
            choose_window.state_layout(body.reductions),
            *choose_window.algorithms(chosen),
        )
        return ph.Node(result.name, (body.source,), op, result.schema, result.time, ph.Follows(), made)

    def _sorted(self, this: ir.Object) -> list[ph.Node]:
        """Rows with their keys and arguments as columns; windows over them sorted; fields over the results."""
        body = this.body
        assert isinstance(body, ir.Reduce | ir.Attach | ir.Apply | ir.Lookback)
        source = self.program[body.source]
        made = spell(this, source, columns_kept(this, source))
        ready = self._rows(made.ready.name, made.samples, source, made.ready)
        if isinstance(body, ir.Apply):
            return [ready, self._sorted_windows(this, body, made.ready.name, made.keys, ())]
        plain, after = (
            behind_windows(this, body, made) if isinstance(body, ir.Reduce) else behind_rows(this, body, made)
        )
        chosen = self._algorithms(this)
        if isinstance(body, ir.Lookback):
            reductions = choose_window.reductions_of(body.reductions, chosen)
            op = ph.LookBack(body.spans, made.keys, reductions)
            windows = _node(plain, (made.ready.name,), op, ph.Follows(), choose_window.algorithms(chosen))
        else:
            windows = self._sorted_windows(plain, body, made.ready.name, made.keys, chosen)
        return [ready, windows, self._rows(this.name, after, plain, this)]

    def _sorted_windows(
        self,
        result: ir.Object,
        body: ir.Reduce | ir.Attach | ir.Apply,
        source: str,
        keys: tuple[str, ...],
        chosen: tuple[AlgorithmChoice, ...],
    ) -> ph.Node:
        reductions = (
            () if isinstance(body, ir.Apply) else choose_window.reductions_of(body.reductions, chosen)
        )
        output = {ir.Reduce: "aggregate", ir.Attach: "attach", ir.Apply: "apply"}[type(body)]
        op = ph.SortedWindows(body.domain, keys, reductions, output)  # type: ignore[arg-type]
        made = (choose_window.grouping(self._obstacle(body)), *choose_window.algorithms(chosen))
        return _node(result, (source,), op, _windows_time(body), made)

    def _obstacle(self, body: ir.Reduce | ir.Attach | ir.Apply) -> str:
        found = pane_obstacle(body, self.program) if isinstance(body, ir.Reduce) else None
        return found or "the result needs the rows of a window, not only their states"

    # -- two inputs ----------------------------------------------------------------------------------

    def _join(self, this: ir.Object, body: jn.Join | jn.Asof) -> ph.Node:
        left, right = self.program[body.left], self.program[body.right]
        inputs = left.name, right.name
        if isinstance(body, jn.Asof):
            nearest = ph.Nearest(body.direction, body.tolerance, body.exact)
            op = ph.Join(nearest, body.on, "left", "merge", eager=False, residual=None)
            reason = "both sides are in order of time: the nearest right row of a key is found by one merge"
            return _node(this, inputs, op, _asof_time(body), (ph.Choice("matching", "merge", reason),))
        eager = choose_join.is_eager(body) and self.mode == "unbounded"
        made = choose_join.join_choices(body, left, right, self.mode)
        op = ph.Join(body.pairing, body.on, body.how, body.algorithm, eager, body.where)
        return _node(this, inputs, op, _join_time(body), made)

    def _rolling_join(self, this: ir.Object, body: jn.RollingJoin) -> list[ph.Node]:
        left, right = self.program[body.left], self.program[body.right]
        made, chosen = spell_rolling(this, body, left, right), self._algorithms(this)
        around = ph.Around(
            body.within.lo, body.within.hi, choose_window.reductions_of(body.reductions, chosen)
        )
        op = ph.Join(around, body.on, "left", "ranges", eager=False, residual=None)
        rule = ph.Lags(max(body.within.hi, 0)) if body.within.hi > 0 else ph.Follows()
        return [
            self._rows(made.ready.name, made.samples, right, made.ready),
            _node(made.plain, (left.name, made.ready.name), op, rule, choose_window.algorithms(chosen)),
            self._rows(this.name, made.fields, made.plain, this),
        ]

    # -- signals -------------------------------------------------------------------------------------

    def _signals(self, this: ir.Object, body: ir.Signals) -> ph.Node:
        inputs = [(self.program[name].schema, self.program[name].time) for name in body.sources]
        objects = tuple(each.name for each in body.program.objects)
        if POSITIONAL_SIGNALS not in self.settings.off and fits(body.program, inputs):
            reason = "time is regular: an object is an array indexed by position"
            op, choice = ph.Signals(objects, "positional"), ph.Choice("evaluation", "positional", reason)
        else:
            obstacle = why_not(body.program, inputs) or "switched off"
            rejected = (ph.Rejected("positional", obstacle),)
            reason = "values are computed from change to change of what they read"
            op = ph.Signals(objects, "change-to-change")
            choice = ph.Choice("evaluation", "change-to-change", reason, rejected)
        return _node(this, body.sources, op, ph.OldestOpenWindow(), (choice,))


# --- watermark rules ------------------------------------------------------------------------------------


def _rows_time(body: ir.Samples, source: ir.Object, result: ir.Object) -> ph.WatermarkRule:
    column = ex.Column(source.time.column)
    computed = next((f for f in body.fields if f.name == result.time.column and f.expr != column), None)
    if computed is None or isinstance(source.body, jn.Table):
        return ph.Follows()
    return ph.AtEnd(f"the time of a row is computed, as {show_expr(computed.expr)}, and may be any")


def _windows_time(body: ir.Reduce | ir.Attach | ir.Apply) -> ph.WatermarkRule:
    """The time of a window's result is its end - 1 tick; attached rows keep their own times."""
    if isinstance(body.domain, Unbounded):
        return ph.AtEnd("the window holds all rows")
    if isinstance(body, ir.Attach):
        return _rows_of(body.domain)
    match body.domain:
        case Session():
            return ph.Lags(1)  # a row at exactly last + gap still joins
        case Count(partial=True):
            return ph.AtEnd("a window that is not full leaves at the end, with the time of its last row")
        case _:
            return ph.Follows()


def _rows_of(window: Window) -> ph.WatermarkRule:
    return ph.Lags(window.size) if isinstance(window, TimeWindow) else ph.OldestOpenWindow()


def _asof_time(body: jn.Asof) -> ph.WatermarkRule:
    """Results have the time of the left row, which waits for a later right one unless none is asked for."""
    if body.direction == "backward":
        return ph.Follows()
    return ph.OldestOpenWindow() if body.tolerance is None else ph.Lags(body.tolerance)


def _join_time(body: jn.Join) -> ph.WatermarkRule:
    match body.pairing:
        case Lookup():
            return ph.Follows()
        case Within(lo=lo, hi=hi):
            return _interval_time(body.how, lo, hi)
        case InWindow():
            return ph.OldestOpenWindow()


def _interval_time(how: str, lo: int, hi: int) -> ph.WatermarkRule:
    """A pair has the time of its later row; a row that may stay without a partner waits for the interval."""
    left = max(hi, 0) if how in ("left", "full", *LEFT_ROW_KINDS) else 0
    right = max(-lo, 0) if how in ("right", "full") else 0
    wait = max(left, right)
    return ph.Lags(wait) if wait else ph.Follows()


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
    if body.keep != "last":
        return _node(this, (body.source,), op, ph.Follows())
    if body.within is None:
        return _node(this, (body.source,), op, ph.AtEnd("a later row may replace the last one of its value"))
    return _node(this, (body.source,), op, ph.OldestOpenWindow())


def _host(host: HostColumns) -> tuple[ph.Choice, ...]:
    """Name what Arrow computes, and why a kernel does not."""
    reason = "kernels compute neither texts beyond equality nor this type"
    return tuple(
        ph.Choice(f"column {name}", f"Arrow computes {show_expr(expr)}", reason)
        for expr, name in host.fields.items()
    )
