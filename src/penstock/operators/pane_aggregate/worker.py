"""A worker of a windowed aggregation: one thread with a private pane table, so that threads never synchronise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.algorithms.hash_table.keys import (
    MOST_TEXT,
    DenseKeys,
    HashKeys,
    Interner,
    Keys,
    NoKeys,
    dense_allowed,
    text_bytes,
)
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import (
    ACCEPTED,
    DONE,
    ERRORS,
    FILTERED,
    NEED_KEYS,
    NEED_SLOTS,
    NEED_WIDE,
    STATUS,
    WORDS,
    Binding,
    positions_table,
)
from penstock.loop.numbers import Morsels, Progress
from penstock.operators.pane_aggregate.fragments import Fragments, pane_count, translate
from penstock.operators.pane_aggregate.merge_tables import (
    add_fragments,
    columns_hashed,
    merge_pane,
    to_hash,
    used_columns,
    variant_of,
)
from penstock.operators.pane_aggregate.pane_assembly import SlidingCursor
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.table import (
    COMPACT,
    SAMPLE,
    KeyShape,
    PaneTable,
    dense_over,
    denser,
    key_ranges,
    panes_ahead,
    shape_of,
)
from penstock.operators.pane_aggregate.tasks import Task
from penstock.physical.nodes import FilterOrder, PaneAggregate, Sharing
from penstock.runtime.adapt.controller import ORDER, Report, order_of
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.kernels import BoundKernel, RowsCall
from penstock.runtime.stage import KernelOverflowError

_POSITIONS = positions_table()


def _unheard(what: str, before: str, after: str, why: str) -> None:
    """Ignore that an assumption failed."""


def assumed_order(assume: Mapping[str, Any], program: WindowProgram) -> FilterOrder | None:
    """The order of conjuncts that the engine assumes, if the filter has them and those that can fail come first; else the plan's."""
    if ORDER not in assume:
        assert isinstance(program.node.op, PaneAggregate)
        return program.node.op.order
    order, costs = order_of(assume[ORDER]), program.conjunct_costs
    fits = sum(map(len, order)) == len(costs)
    return order if fits and all(costs[number].total for group in order[1:] for number in group) else None


def assumed_sharing(assume: Mapping[str, Any], program: WindowProgram) -> Sharing:
    """The way to share a table that the engine assumes; no atomic operation updates floats, or choices of rows."""
    sharing: Sharing = assume.get("key table shared", "private")
    return "private" if sharing == "shared" and not program.atomic_states else sharing


class Worker:
    """Fold batches into a pane table; grow the table and switch kernel variants as the data requires."""

    def __init__(
        self,
        program: WindowProgram,
        nullable: frozenset[str],
        adaptive: bool,
        give_way: Report = _unheard,
        assume: Mapping[str, Any] | None = None,
    ) -> None:
        """`give_way` is called with each assumption that rows have broken."""
        self.program = program
        self.give_way = give_way
        self.assume = assume or {}
        self.nullable = nullable | frozenset(
            program.columns if self.assume.get("null flags") == "all" else ()
        )
        self.adaptive = adaptive
        self.order = assumed_order(self.assume, program)  # of the filter's conjuncts
        # How workers share the first one's table.
        self.sharing = assumed_sharing(self.assume, program)
        self.runs = self.assume.get("addition") == "run by run" and bool(program.keys)
        self.rows = 0
        self.expected = 0  # rows of the current push, over all workers
        self.expected_panes = 2
        self.interners: dict[str, Interner] = {}
        self.table: PaneTable | None = None
        self.sliding: SlidingCursor | None = None
        self.known: KnownPlan | None = None  # what earlier runs found, until the first table
        self.last_keys: KeyShape | None = None  # of the table that was dropped last
        self.reset()

    # -- folding -------------------------------------------------------------------------------------

    def fold(self, task: Task) -> None:
        """Fold the remaining morsels of a task into the table; other workers may take morsels of the same task."""
        arguments = task.arguments or BatchArguments(task.timed_batch.batch, self.interners)
        while task.shares.left:
            self.progress(arguments, task, self.kernel(arguments, task).over(task.shares))

    def progress(self, arguments: BatchArguments, task: Task, progress: Progress) -> None:
        """Record a kernel's progress; if it stopped, make room and finish its morsel."""
        self.rows += progress.rows
        if progress.stop is not None:
            self._finish_share(arguments, task, *progress.stop)
        if self.table is not None and self.table.head[ERRORS]:
            raise KernelOverflowError

    def begin(self, arguments: BatchArguments) -> PaneTable:
        """The first table."""
        known, self.known = self.known, None
        wide = (
            not self.adaptive or self.assume.get("sums") == "128 bits" or (known is not None and known.wide)
        )
        layout = self.program.layout(self.nullable, wide)
        keys = self.likely_keys or self._known_keys(known, arguments) or self.first_keys(arguments)
        sparse = isinstance(keys, HashKeys) and keys.sparse
        return PaneTable(
            layout, keys, 1 if sparse else panes_ahead(self.expected_panes, layout, keys.columns)
        )

    def _known_keys(self, known: KnownPlan | None, arguments: BatchArguments) -> Keys | None:
        """The key table that earlier runs ended with, if it suits the rows of this one."""
        if known is None or not self.program.keys or "key table" in self.assume:
            return None
        match known.key_table:
            case "sparse":
                return self.new_pairs()
            case "hash":
                return self.new_hash_keys()
            case "dense" if self.program.may_be_dense and len(known.ranges) == len(self.program.keys):
                dense = dense_over(known.ranges)
                allowed = dense_allowed(dense.columns, max(self.expected, arguments.batch.num_rows))
                return dense if allowed and not self.program.interned else None
        return None

    @property
    def key_shape(self) -> KeyShape | None:
        """The kind and the ranges of the key table, or of the last one."""
        return self.last_keys if self.table is None else shape_of(self.table)

    def _finish_share(self, arguments: BatchArguments, task: Task, done: int, end: int) -> None:
        """Make room for a kernel that stopped, and run it to the end of its morsel."""
        if self.table is not None:  # None: its last panes were emitted meanwhile
            self.make_room(arguments)
        while done < end:
            stop = self.kernel(arguments, task).over(Morsels(done, end, end - done)).stop
            done = end if stop is None else stop[0]
            self.make_room(arguments)

    def kernel(self, arguments: BatchArguments, task: Task) -> BoundKernel:
        """The kernel of the current variant, bound to the rows and to the current table."""
        if self.table is None:
            self.table = self.begin(arguments)
        kernel = self.fold_kernel(self.table)
        rows = {**arguments.fill(kernel.bindings), "first_row": task.timed_batch.first_row}
        return BoundKernel.of(kernel.call, {**rows, **self.table.arguments(), "positions": _POSITIONS})

    def fold_kernel(self, table: PaneTable) -> RowsCall:
        """The fold kernel of the current variant."""
        return self.program.variants.get(variant_of(self.nullable, table, self.order, runs=self.runs)).fold

    def make_room(self, arguments: BatchArguments) -> None:
        """Remove the obstacle at which a kernel stopped."""
        table = self.table
        assert table is not None
        match int(table.head[STATUS]):
            case status if status == DONE:
                return
            case status if status == NEED_SLOTS:
                if table.too_empty:
                    self.use_sparse()
                else:
                    table.grow_slots()
            case status if status == NEED_WIDE:
                table.widen()
                self.give_way("sums", "64 bits", "128 bits", "a sum left 64 bits")
            case status if status == NEED_KEYS:
                self._more_keys(table, arguments)

    def assume_nulls(self, nullable: frozenset[str]) -> None:
        """Continue with another set of columns that may hold nulls."""
        self.sliding = None
        if self.table is not None:
            sources = self.program.sources(self.nullable, nullable)
            self.table.relayout(self.program.layout(nullable, self.table.wide), sources)
            if isinstance(self.table.keys, HashKeys):
                self.table.keys.nullable = self.program.key_may_be_null(nullable)
                self.table.keys.rehash()
        self.nullable = nullable

    # -- keys ----------------------------------------------------------------------------------------

    def hashes_nulls(self) -> bool:
        return self.program.key_may_be_null(self.nullable)

    def new_hash_keys(self) -> HashKeys:
        """An empty key table."""
        return self._new_keys(len(self.program.keys))

    def first_keys(self, arguments: BatchArguments) -> Keys:
        """Return a dense table if the plan has one and the key range of the first rows is small, else a hash table."""
        if not self.program.keys:
            return NoKeys()
        tried = self.adaptive and self.program.may_be_dense and self.assume.get("key table") != "hash"
        if tried and (ranges := key_ranges(self.program.keys, arguments, SAMPLE)) is not None:
            dense = DenseKeys.of_sample(*map(tuple, ranges))
            if dense_allowed(dense.columns, max(self.expected, arguments.batch.num_rows)):
                return dense
        return self.new_hash_keys()

    def _more_keys(self, table: PaneTable, arguments: BatchArguments) -> None:
        if isinstance(table.keys, HashKeys):
            if table.too_empty:
                self.use_sparse()
            else:
                table.grow_keys()
            return
        assert isinstance(table.keys, DenseKeys)
        ranges = key_ranges(self.program.keys, arguments)
        assert ranges is not None
        self.cover(*ranges)

    def cover(self, lows: Sequence[int], highs: Sequence[int]) -> None:
        """Extend a dense table to cover more keys; switch to a hash table, or to pairs, if it would grow too large."""
        table = self.table
        assert table is not None and isinstance(table.keys, DenseKeys)
        larger = table.keys.covering(lows, highs)
        if larger == table.keys:
            return
        allowed = dense_allowed(larger.columns, max(self.expected, self.rows))
        if not allowed or table.wasteful(table.slots, larger.columns):
            self._leave_dense(table)
            return
        smaller = table.keys
        table.change_keys(larger, lambda before, after: smaller.move(before, after, larger))

    def _leave_dense(self, table: PaneTable) -> None:
        """Switch to a hash table, or to pairs where a grid with the columns of a hash table would be mostly empty."""
        columns = columns_hashed(len(used_columns(table)), self.new_hash_keys())
        if table.wasteful(table.slots, columns):
            self.use_sparse()
        else:
            self.use_hash()

    def use_hash(self) -> None:
        """Replace a dense key table by a hash table of the keys in use."""
        table = self.table
        assert table is not None
        self.give_way("key table", "dense", "hash", "keys lie too far apart for an array")
        to_hash(table, self.new_hash_keys())

    def use_sparse(self) -> None:
        """Replace the grid of panes and keys by a hash table of the (pane, key) pairs that occur."""
        assert self.table is not None
        self.give_way("key table", self.table.keys.kind, "sparse", "few keys occur in a pane")
        self.exchange_keys(self.new_pairs())

    def exchange_keys(self, keys: Keys) -> None:
        """Rebuild the table with another key table, through its canonical form; rows not yet counted stay so."""
        assert self.table is not None
        fragments, head = self.table.fragments(), self.table.head
        self.hold(fragments, keys)
        self.table.head[[ACCEPTED, FILTERED, ERRORS]] = head[[ACCEPTED, FILTERED, ERRORS]]

    def new_pairs(self) -> HashKeys:
        """An empty key table for (pane, key) pairs."""
        return self._new_keys(len(self.program.keys) + 1, sparse=True)

    def _new_keys(self, width: int, sparse: bool = False) -> HashKeys:
        head, nullable = np.zeros(WORDS, np.int64), self.hashes_nulls()
        return HashKeys(width, head, nullable, sparse=sparse, rows=self.expected)

    # -- merging -------------------------------------------------------------------------------------

    def merge_fragments_into(self, other: Worker, last: bool = False) -> None:
        """Merge another worker's table into this one and reset the other; with `last`, no row is added here afterwards."""
        self.sliding = None
        many = other.slots
        if many == 0:
            return
        if self.slots == 0:
            self.table, self.interners, self.rows = other.table, other.interners, other.rows
            other.table = None
        else:
            self.rows += other.rows
            self.merge_slots(other, range(many), last)
        other.reset()

    def merge_slots(self, other: Worker, slots: Sequence[int], last: bool = False) -> None:
        """Merge the given slots of another worker's table into this table."""
        self.sliding = None
        assert self.table is not None and other.table is not None
        if self.same_columns(other):
            merge_pane(self.program, self.nullable, self.table, other.table, slots, last)
            return
        fragments = other.table.fragments(slots)
        translate(fragments, self.program.keys, self.interners, other.interners)
        self.add_fragments(fragments)

    def copy_panes(self, other: Worker, slots: Sequence[int]) -> None:
        """Copy another worker's panes that are absent here, for emission: they are dropped before the next row is folded."""
        self.sliding = None
        assert self.table is not None and other.table is not None
        if self.same_columns(other):
            self.table.put_behind(other.table, slots)
        else:
            self.merge_slots(other, slots)

    def reset(self) -> None:
        """Drop the table and the interned texts."""
        self.sliding = None
        self.last_keys = self.key_shape
        self.table, self.rows = None, 0
        self.likely_keys: DenseKeys | None = None
        self.dropped = 0  # panes, since the key table was last examined
        self._number_anew()

    def _number_anew(self) -> None:
        self.interners = {name: Interner(self.program.texts.intern) for name in self.program.interned}
        self.text_kept = 0

    def _keys_worth_keeping(self, table: PaneTable, gone: int) -> Keys:
        """The key table to continue with when `gone` panes are about to be dropped.

        Finished panes count as well: right after a window closes, a table holds hardly any key. It is examined
        once for every table full of panes, so that a drop costs no more than the pane it drops.
        """
        self.dropped += gone
        if self.dropped < table.slots or table.keys_held <= COMPACT:
            return table.keys
        self.dropped = 0
        used = used_columns(table)
        if 4 * len(used) > table.keys_held:
            return table.keys
        if isinstance(table.keys, DenseKeys):
            return denser(table.keys, used, self.program.keys) or self.new_hash_keys()
        return self.new_hash_keys()

    def forget_texts(self) -> None:
        """Drop the texts that no pane holds, once they are the larger part; call it between pushes only."""
        table = self.table
        if table is None or text_bytes(self.interners) <= max(MOST_TEXT, 2 * self.text_kept, table.nbytes):
            return
        keys = table.keys
        if isinstance(keys, HashKeys):
            keys = self.new_pairs() if keys.sparse else self.new_hash_keys()
        self._renew(table, keys)

    def _renew(self, table: PaneTable, keys: Keys) -> None:
        """Rebuild the table with these keys, and the interners with only the texts it holds."""
        fragments, interners = table.fragments(), self.interners
        self._number_anew()
        translate(fragments, self.program.keys, self.interners, interners)
        self.hold(fragments, keys)
        self.text_kept = text_bytes(self.interners)

    def hold(self, fragments: Fragments, keys: Keys) -> None:
        """Replace the table by one with these keys, filled from fragments whose words use this worker's codes."""
        sparse = isinstance(keys, HashKeys) and keys.sparse
        # With fewer slots than panes, the table would grow and be copied repeatedly.
        slots = 1 if sparse else max(2, pane_count(fragments.panes))
        self.table = PaneTable(self.program.layout(self.nullable, fragments.wide), keys, slots)
        self.add_fragments(fragments)

    def same_columns(self, other: Worker) -> bool:
        """Whether both tables hold the same key in the same column, and neither holds interned codes."""
        own, its = self.table, other.table
        assert own is not None and its is not None
        if not isinstance(own.keys, NoKeys | DenseKeys) or own.keys != its.keys or own.wide != its.wide:
            return False
        if not self.program.interned:
            return True
        return not any(key.text for key in self.program.keys) and not any(spec.text for spec in own.specs)

    def arenas(self, bindings: Sequence[Binding]) -> dict[str, object]:
        """The text buffers for kernels other than the fold."""
        return {binding.parameter: self.interners[binding.column].arena(binding.role) for binding in bindings}

    def add_fragments(self, fragments: Fragments) -> None:
        """Merge fragments whose words use this worker's codes into the table."""
        self.sliding = None
        add_fragments(self, fragments)

    @property
    def slots(self) -> int:
        return 0 if self.table is None else self.table.slots

    @property
    def cells(self) -> int:
        """The number of cells of all slots in use, empty ones included."""
        return 0 if self.table is None else self.slots * self.table.keys.columns

    @property
    def sparse(self) -> bool:
        return self.table is not None and self.table.sparse

    def drop(self, finished: Callable[[np.ndarray], np.ndarray]) -> None:
        """Drop the panes for which `finished` is true."""
        table = self.table
        if table is None:
            return
        if not table.sparse:
            self._drop_panes(table, finished(table.panes[: table.slots]))
            return
        fragments = table.fragments()
        gone = finished(fragments.panes)
        if gone.all():
            self.reset()
        elif gone.any():
            self.hold(fragments.chosen(~gone), self.new_pairs())

    def _drop_panes(self, table: PaneTable, gone: np.ndarray) -> None:
        """Drop panes of a grid. A dense range of keys outlives them, so that the next window is dense as well."""
        many = int(np.count_nonzero(gone))
        if not many:
            return
        keys = self._keys_worth_keeping(table, many)
        self.rows -= self.rows * many // (2 * table.slots)  # roughly the rows of the panes held lately
        if many == table.slots:
            rows, dropped = self.rows, self.dropped
            self.reset()
            if isinstance(keys, DenseKeys):
                self.likely_keys, self.rows, self.dropped = keys, rows, dropped
            return
        table.drop(gone)
        if keys is not table.keys:
            self._renew(table, keys)
