"""The adaptive loop of a windowed aggregation: profile a sample, decide, migrate the workers' tables between two tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import positions_table
from penstock.loop.numbers import Morsels
from penstock.operators.pane_aggregate.merge_tables import (
    Bounds,
    agree,
    covering,
    holds_null_keys,
    kernels_for,
    key_bounds,
    sums_are_narrow,
    to_dense,
    to_hash,
    variant_of,
)
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.table import PaneTable, key_ranges
from penstock.operators.pane_aggregate.tasks import Task, part_of
from penstock.operators.pane_aggregate.worker import Worker, assumed_order
from penstock.physical.nodes import Node, PaneAggregate, Sharing
from penstock.physical.order_conjuncts import show_order
from penstock.physical.profile import Profile
from penstock.physical.specialise import (
    Difference,
    KeyUse,
    StateProfile,
    choose_sharing,
    decide,
    differences,
    profile_of,
    runnable,
    specialise,
)
from penstock.runtime.adapt.controller import ORDER, Controller, this_machine
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.kernels import BoundKernel
from penstock.runtime.stage import TimedBatch


class PaneAdaptation:
    """Profiles rows on the first worker, and changes the variants of all workers between two tasks.

    `pinned` choices never change by decision; they give way where rows break what they assume.
    """

    def __init__(
        self,
        program: WindowProgram,
        controller: Controller,
        threads: int,
        pinned: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.controller, self.pinned = program, controller, pinned
        self.machine = this_machine(threads)
        self._last_null: dict[str, int] = {}

    def saw_nulls(self, columns: frozenset[str]) -> None:
        """Take note of the columns of a batch that hold nulls."""
        for column in columns:
            self._last_null[column] = self.controller.rows

    def begin_with(self, worker: Worker, known: KnownPlan) -> None:
        """Begin a run with the plan of earlier ones. Choices that do not fit this query are left out."""
        worker.known = known
        nullable = frozenset(known.nullable) & frozenset(self.program.columns)
        changes = [("null flags", "none", ", ".join(sorted(nullable)))] if nullable else []
        worker.nullable |= nullable
        self.saw_nulls(nullable)
        order = None if known.order is None else assumed_order({ORDER: known.order}, self.program)
        if order is not None and ORDER not in self.pinned:
            worker.order = order
            changes.append(("filter order", show_order(None), show_order(order)))
        if known.wide and "sums" not in self.pinned:
            changes.append(("sums", "64 bits", "128 bits"))
        if known.key_table in ("hash", "sparse") and self.program.may_be_dense:
            changes.append(("key table", "dense", known.key_table))
        self.controller.go_on(known.schedule, known.runs, changes)

    def first_sharing(self, columns: int, rows: int) -> Sharing:
        """How workers share the table of the first rows."""
        return choose_sharing(self._key_use(columns, rows), self.machine)[0]

    def _key_use(self, columns: int, rows: int, skew: float = 0.0) -> KeyUse:
        program = self.program
        states = 0 if program.interned else program.atomic_states
        return KeyUse(columns, 16, rows, skew, states, len(program.conjunct_costs))

    def node_of(self, worker: Worker) -> Node:
        """The variant that a worker runs."""
        table = worker.table
        return (
            self.program.node
            if table is None
            else specialise(
                self.program.node,
                variant_of(worker.nullable, table, worker.order, worker.sharing, worker.runs),
            )
        )

    def adapt(self, workers: Sequence[Worker], timed_batch: TimedBatch) -> TimedBatch:
        """Fold the first rows of a batch with the instrumented kernel, and swap variants; return the other rows.

        Nothing is done before the kernel has been compiled, in the background.
        """
        worker, policy = workers[0], self.controller.policy
        if not self.program.keys and not self.program.exact:
            # Without keys floats are summed chunk by chunk: a sample would end a chunk, and change bits.
            self.controller.profiled(worker.table is not None and self._decide(workers, Profile(0)))
            return timed_batch
        rows = min(timed_batch.batch.num_rows, policy.sample)
        sample = part_of(timed_batch, 0, rows)
        if worker.known is not None and rows:  # the profile was due when this run began
            worker.table = worker.begin(BatchArguments(sample.batch, worker.interners))
        if worker.table is None or not rows or not self._ready(worker):
            return timed_batch
        profile = self._profile(worker, sample)
        changed = self._decide(workers, profile)
        self.controller.profiled(changed)
        return part_of(timed_batch, rows, timed_batch.batch.num_rows)

    def _ready(self, worker: Worker) -> bool:
        assert worker.table is not None
        seen = variant_of(worker.nullable, worker.table)
        variants = self.program.variants
        prepare = partial(getattr, variants.get(seen), "instrumented_fold")
        return variants.ready(("instrumented", seen), prepare, self.controller.policy.start)

    # -- profile -------------------------------------------------------------------------------------

    def _profile(self, worker: Worker, sample: TimedBatch) -> Profile:
        """Fold a sample with the instrumented kernel; a kernel that stops goes on uninstrumented."""
        rows = sample.batch.num_rows
        arguments = BatchArguments(sample.batch, worker.interners)
        words = np.array(self.program.profile_layout.start(), np.int64)
        task = Task(sample, Morsels(0, rows, rows), arguments)
        bound = self._bound(worker, task, arguments, words)
        worker.progress(arguments, task, bound.over(task.shares))
        nulls = [(name, arguments.column(name).null_count) for name in sorted(worker.nullable)]
        return self.program.profile_layout.read(words.tolist(), [pair for pair in nulls if pair[1]])

    def _bound(self, worker: Worker, task: Task, arguments: BatchArguments, words: np.ndarray) -> BoundKernel:
        table = worker.table
        assert table is not None
        kernel = kernels_for(self.program, worker.nullable, table).instrumented_fold
        base, shift = self._bucket_ranges(worker, arguments)
        counts = {"profile": words, "bucket_base": base, "bucket_shift": shift}
        rows = {**arguments.fill(kernel.bindings), "first_row": task.timed_batch.first_row}
        return BoundKernel.of(
            kernel.call, {**rows, **table.arguments(), **counts, "positions": positions_table()}
        )

    def _bucket_ranges(self, worker: Worker, arguments: BatchArguments) -> tuple[int, int]:
        """The first word and the width, as a shift, of the histogram's ranges."""
        found = key_ranges(self.program.keys, arguments) if self.program.keys else None
        if found is None:
            return 0, 0
        low, high = found[0][0], found[1][0]
        return low, max((high - low).bit_length() - 8, 0)

    # -- decision ------------------------------------------------------------------------------------

    def _decide(self, workers: Sequence[Worker], profile: Profile) -> bool | None:
        """Decide, and apply the choices that may change now; return whether one has.

        None: their kernel is being compiled in the background, while the old one runs.
        """
        now, state = self.node_of(workers[0]), self._state(workers, profile)
        self._sense_keys(workers[0].table, state)
        chosen = cast(Node, (self.controller.policy.decide or decide)(profile, state, self.machine, now))
        wanted = [found for found in differences(now, chosen) if self._may(found)]
        if wanted and not self._compiled(chosen):
            return None
        done = [found for found in wanted if self._apply(workers, found, state, chosen)]
        for what, before, after, why in done:
            self.controller.change(what, before, after, why)
        return bool(done)

    def _sense_keys(self, table: PaneTable | None, state: StateProfile) -> None:
        """Sense how full the table of keys is, and how far a look-up probes."""
        sensor = self.controller.sensor
        if table is None or not self.program.keys:
            return
        if isinstance(table.keys, HashKeys):
            sensor.note("occupancy", table.keys.occupancy)
            sensor.note("probe length", table.keys.probe_length())
        else:
            sensor.note("occupancy", state.keys / max(table.keys.columns, 1))

    def _compiled(self, chosen: Node) -> bool:
        """Whether the fold of a variant is compiled in full; the first call starts that."""
        assert isinstance(chosen.op, PaneAggregate)
        variants, seen = self.program.variants, runnable(profile_of(chosen.op))
        return variants.ready(
            ("fold", seen), variants.get(seen).fold.call.prepare, self.controller.policy.start
        )

    def _may(self, found: Difference) -> bool:
        return found.what not in self.pinned and self.controller.may(found.what)

    def _state(self, workers: Sequence[Worker], profile: Profile) -> StateProfile:
        tables = [worker.table for worker in workers if worker.table is not None]
        held = [bounds for table in tables if (bounds := key_bounds(table)) is not None]
        ranges = None
        if self.program.may_be_dense and profile.keys:
            ranges = tuple(covering([profile.keys, *(bounds for _, bounds in held)]))
        narrow = any(spec.guarded for spec in self.program.layout(workers[0].nullable, False))
        return StateProfile(
            max(worker.rows for worker in workers),
            max((keys for keys, _ in held), default=profile.distinct),
            ranges,
            narrow and all(map(sums_are_narrow, tables)),
            self._null_free(workers[0].nullable, tables),
            self.program.conjunct_costs,
            self._shared_use(workers, profile),
        )

    def _shared_use(self, workers: Sequence[Worker], profile: Profile) -> KeyUse | None:
        """How the table is used, if workers may share it now: float sums keep the grouping that they began with."""
        table = workers[0].table
        if table is None or table.keys.kind != "dense" or len(workers) == 1 or not self.program.exact:
            return None
        return self._key_use(
            table.keys.columns, max(self.controller.usual_rows, workers[0].rows), profile.skew
        )

    def _null_free(self, nullable: frozenset[str], tables: Sequence[PaneTable]) -> frozenset[str]:
        """The nullable columns without a null for as many rows as lie between two profiles, and in no state."""
        policy = self.controller.policy
        since = self.controller.rows - policy.every * policy.task
        quiet = frozenset(name for name in nullable if self._last_null.get(name, -1) < since)
        pairs = self.program.same_without_nulls(nullable, nullable - quiet)
        for table in tables:
            if holds_null_keys(table) or not all(agree(table, *pair) for pair in pairs):
                return frozenset()
        return quiet

    def _apply(self, workers: Sequence[Worker], found: Difference, state: StateProfile, chosen: Node) -> bool:
        assert isinstance(chosen.op, PaneAggregate)
        for worker in workers:
            worker.sliding = None
        match found.what:
            case "key table" if found.after == "dense" and state.ranges is not None:
                return self._use_dense(workers, state.ranges)
            case "key table" if found.after == "hash":
                return self._use_hash(workers)
            case "sums" if chosen.op.wide:
                return self._use_wide(workers)
            case "sums":
                return self._use_narrow(workers)
            case "key table shared":
                for worker in workers:
                    worker.sharing = chosen.op.sharing
                return True
            case "filter order":
                for worker in workers:
                    worker.order = chosen.op.order
                return True
            case "addition":
                for worker in workers:
                    worker.runs = chosen.op.runs
                return True
            case "null flags":
                for worker in workers:
                    worker.assume_nulls(chosen.op.nullable)
                return True
        return False

    def _use_dense(self, workers: Sequence[Worker], ranges: Bounds) -> bool:
        """Give all workers the same dense columns, so that their tables merge without look-ups."""
        for worker in workers:
            if worker.table is None:
                worker.likely_keys = DenseKeys.of_sample(*zip(*ranges, strict=True))
            elif worker.table.keys.kind == "hash":
                to_dense(worker.table, ranges)
            elif worker.table.sparse:
                worker.exchange_keys(DenseKeys.of_sample(*zip(*ranges, strict=True)))
        return True

    def _use_hash(self, workers: Sequence[Worker]) -> bool:
        for worker in workers:
            worker.likely_keys = None
            if worker.table is not None and worker.table.keys.kind == "dense":
                to_hash(worker.table, worker.new_hash_keys())
        return True

    def _use_wide(self, workers: Sequence[Worker]) -> bool:
        for worker in workers:
            if worker.table is not None and not worker.table.wide:
                worker.table.widen()
        return True

    def _use_narrow(self, workers: Sequence[Worker]) -> bool:
        for worker in workers:
            if worker.table is not None and worker.table.wide:
                worker.table.narrow(self.program.layout(worker.nullable, False))
        return True
