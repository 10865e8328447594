"""The cells of pane tables as state tables: (pane, key, partial states), one row for each non-empty (pane, key).

Workers hold states in a form specialised for the data so far: 64-bit sums, no null tracking where there were no nulls,
texts as codes. Saved rows have the most general form, with keys and texts as values; loading specialises them again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys, Keys, NoKeys, dense_allowed
from penstock.loop.abi import numbered
from penstock.loop.nodes import I128
from penstock.operators.pane_aggregate.fragments import Fragments, narrowed, pane_count, translate, widened
from penstock.operators.pane_aggregate.program import KeySpec, StateSpec, WindowProgram
from penstock.operators.pane_aggregate.table import LARGE_GRID, may_be_dense
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.buffers import indices, numpy_type, to_arrow, values_view
from penstock.runtime.key_encoding import hash_keys, values_of, words_of
from penstock.state.state_table import StateTable, of_type, seen, without_nulls

_PANE = "pane"


def kept_cells(workers: Sequence[Worker]) -> StateTable | None:
    """Merge the cells of all workers into a state table, without changing the workers; None if there are none."""
    busy = [worker for worker in workers if worker.slots]
    if not busy:
        return None
    if len(busy) == 1:
        return _kept(_general(busy[0]), busy[0])
    program = busy[0].program
    whole = Worker(program, frozenset(program.columns), adaptive=False)
    for worker in busy:
        fragments = _general(worker)
        translate(fragments, whole.program.keys, whole.interners, worker.interners)
        if whole.table is None:
            whole.hold(fragments, _key_table(whole, fragments))
        else:
            whole.add_fragments(fragments)
    return _kept(_general(whole), whole)


def hold_cells(worker: Worker, table: pa.Table) -> None:
    """Load saved cells into a worker, in the form that matches its assumptions."""
    program = worker.program
    general = frozenset(program.columns)
    fragments = _fragments(table, worker, program.layout(general, wide=True))
    sources = program.sources(general, worker.nullable)
    fragments = fragments.relaid(program.layout(worker.nullable, wide=True), sources)
    if worker.adaptive:
        fragments = narrowed(fragments, program.layout(worker.nullable, wide=False))
    worker.hold(fragments, _key_table(worker, fragments))


def _general(worker: Worker) -> Fragments:
    """The fragments of a worker in the most general form."""
    assert worker.table is not None
    program, general = worker.program, frozenset(worker.program.columns)
    sources = program.sources(worker.nullable, general)
    return widened(worker.table.fragments()).relaid(program.layout(general, wide=True), sources)


def panes_of(table: pa.Table) -> np.ndarray:
    """The pane numbers of saved cells."""
    return _integers(table, _PANE)


def rows_in(table: pa.Table, chosen: np.ndarray) -> int:
    """Count the rows of the chosen cells; their first state must be a row count, not a flag."""
    return int(_integers(table, numbered("state", 0))[chosen].sum()) if chosen.any() else 0


# --- to Arrow and back ------------------------------------------------------------------------------------------


def _kept(fragments: Fragments, worker: Worker) -> StateTable:
    keys = worker.program.keys
    names = [numbered("key", place) for place in range(len(keys))]
    arrays = [indices(fragments.panes)]
    arrays += [_key_array(fragments, place, key, worker) for place, key in enumerate(keys)]
    arrays += [
        _state_array(state, spec, worker)
        for state, spec in zip(fragments.states, fragments.specs, strict=True)
    ]
    states = [numbered("state", place) for place in range(len(fragments.specs))]
    return StateTable(pa.Table.from_arrays(arrays, names=[_PANE, *names, *states]), tuple(names), (_PANE,))


def _key_array(fragments: Fragments, place: int, key: KeySpec, worker: Worker) -> pa.Array:
    words, there = fragments.words[place], (fragments.nulls >> place) & 1 == 0
    if key.text:
        assert key.column is not None
        return worker.interners[key.column].decode(np.where(there, words, -1), pa.large_string())
    return to_arrow(values_of(words, key.type), there, key.type)


def _state_array(state: np.ndarray, spec: StateSpec, worker: Worker) -> pa.Array:
    if spec.text is not None:
        return worker.interners[spec.text].decode(state, pa.large_string())
    if spec.type == I128:
        return pa.Array.from_buffers(_arrow_type(spec), len(state) // 2, [None, pa.py_buffer(state)])
    return to_arrow(state, None, _arrow_type(spec))


def _arrow_type(spec: StateSpec) -> pa.DataType:
    return pa.binary(16) if spec.type == I128 else pa.from_numpy_dtype(numpy_type(spec.type))


def _fragments(table: pa.Table, worker: Worker, specs: tuple[StateSpec, ...]) -> Fragments:
    words, nulls = [], np.zeros(table.num_rows, np.int64)
    for place, key in enumerate(worker.program.keys):
        name = numbered("key", place)
        words.append(_key_words(table, name, key, worker))
        array = seen(table, name)
        if array.null_count:
            null = array.is_null().to_numpy(zero_copy_only=False)
            words[place] = np.where(null, np.int64(0), words[place])
            nulls |= null.astype(np.int64) << place
    states = [_state_cells(table, numbered("state", place), spec, worker) for place, spec in enumerate(specs)]
    return Fragments(_integers(table, _PANE), words, nulls, states, specs)


def _integers(table: pa.Table, name: str) -> np.ndarray:
    return values_view(without_nulls(of_type(seen(table, name), name, pa.int64()), name))


def _key_words(table: pa.Table, name: str, key: KeySpec, worker: Worker) -> np.ndarray:
    if key.text:
        assert key.column is not None
        return (
            worker.interners[key.column]
            .encode(of_type(seen(table, name), name, pa.large_string()))
            .astype(np.int64)
        )
    return words_of(of_type(seen(table, name), name, key.type))


def _state_cells(table: pa.Table, name: str, spec: StateSpec, worker: Worker) -> np.ndarray:
    if spec.text is not None:
        return worker.interners[spec.text].encode(of_type(seen(table, name), name, pa.large_string()))
    array = without_nulls(of_type(seen(table, name), name, _arrow_type(spec)), name)
    if spec.type == I128:
        return np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
    return values_view(array)


# --- the key table of loaded cells ------------------------------------------------------------------------------


def _key_table(worker: Worker, fragments: Fragments) -> Keys:
    """Choose the key table: dense if the key range is small, (pane, key) pairs if few keys share a pane, else hashed."""
    program = worker.program
    if not program.keys:
        return NoKeys()
    panes = pane_count(fragments.panes)
    cell = sum(state.nbytes for state in fragments.states) // max(len(fragments), 1)
    dense = _dense(program, fragments) if worker.adaptive else None
    if dense is not None and panes * dense.columns * cell < LARGE_GRID:
        return dense
    columns = len(np.unique(hash_keys(fragments.words, fragments.nulls)))
    scattered = panes * columns * cell >= LARGE_GRID and 4 * len(fragments) < panes * columns
    keys: HashKeys = worker.new_pairs() if scattered else worker.new_hash_keys()
    return keys


def _dense(program: WindowProgram, fragments: Fragments) -> DenseKeys | None:
    if not may_be_dense(program.keys):
        return None
    here = fragments.keys_there()
    lows = [int(words.min()) if len(words) else 0 for words in here]
    highs = [int(words.max()) if len(words) else 0 for words in here]
    width = len(program.keys)
    dense = DenseKeys((0,) * width, (1,) * width).covering(lows, highs)
    return dense if dense_allowed(dense.columns, len(fragments)) else None
