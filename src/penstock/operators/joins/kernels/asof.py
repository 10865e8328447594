"""The kernel of as-of joins with later right rows, between pushes: left rows wait for the next right row of their key.

Left rows that wait are in lists per key, in order of time. The next right row of a key is the answer for all of them, so
its list is emptied; of right rows of equal time, the last one matches. Left rows leave in order of time, as soon as no
nearer right row can come. So each step is a row that enters, a row that is answered, or one that leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Kernel, Value, Var, const, maximum, select

# Words of `marks`: the next left row, the next right row to answer and to be known, the first left row that waits.
LEFT, ANSWER, KNOWN, WAITING = range(4)
NONE = -1


def next_rows(nearest: bool, exact: bool) -> Kernel:
    """Enter new rows, and write the right rows of the left rows that leave.

    Right rows have keys. `known` is the last one of a key, which counts if the join is to the `nearest` row. `reach` is the tolerance, -1
    without one.
    """
    return _NextRows(KernelBuilder("next_rows"), nearest, exact).kernel()


@dataclass
class _NextRows:
    k: KernelBuilder
    nearest: bool
    exact: bool

    def __post_init__(self) -> None:
        k = self.k
        self.marks = k.buffer("marks", I64)
        self.left, self.left_keys, self.links = (k.buffer(n, I64) for n in ("left", "left_keys", "links"))
        self.right, self.right_keys = k.buffer("right", I64), k.buffer("right_keys", I64)
        self.repeated = k.buffer("repeated", U8)
        self.first, self.last = k.buffer("first", I64), k.buffer("last", I64)
        self.known, self.seen = k.buffer("known", I64), k.buffer("seen", I64)
        self.before, self.after = k.buffer("before", I64), k.buffer("after", I64)
        self.found = k.buffer("found", I64)
        self.left_end, self.right_end = k.scalar("left_end"), k.scalar("right_end")
        self.reach, self.watermark, self.closing = (k.scalar(n) for n in ("reach", "watermark", "closing"))

    def kernel(self) -> Kernel:
        k, marks = self.k, self.marks
        answer, known = k.var("answer", marks[ANSWER]), k.var("known_upto", marks[KNOWN])
        self._mark_repeated(answer)
        with k.for_(marks[LEFT], self.left_end, "row", scalar=True) as row:
            time = k.var("time", self.left[row])
            self._answer_until(answer, time, self.exact)
            if self.nearest:
                self._know_until(known, time)
            self._wait(row)
        with k.while_(answer < self.right_end):
            self._answer(answer)
        if self.nearest:
            with k.while_(known < self.right_end):
                self._know(known)
        self._release()
        k.ret(0)
        return k.build()

    def _mark_repeated(self, begin: Value) -> None:
        """Mark new right rows that a later one of the same key and time follows. Stale words of `seen` do no harm."""
        k = self.k
        with k.for_(0, self.right_end - begin, "turn", scalar=True) as turn:
            row = k.var("row_back", self.right_end - 1 - turn)
            key = k.var("key_back", self.right_keys[row])
            later = k.var("later", self.seen[key])
            inside = k.var("inside", (later > row) & (later < self.right_end), BOOL)
            at = k.var("later_at", select(inside, later, row))
            same = self.right_keys[at].eq(key) & self.right[at].eq(self.right[row])
            k.store(self.repeated, row, (inside & same).to(U8))
            k.store(self.seen, key, row)

    # -- right rows ----------------------------------------------------------------------------------

    def _answer_until(self, place: Var, time: Value, exact: bool) -> None:
        """Answer with the right rows that are before a left row; of its time, too, if it does not match them."""
        k = self.k
        going = k.var("going", self._is_earlier(place, time, not exact), BOOL)
        with k.while_(going):
            self._answer(place)
            k.set(going, self._is_earlier(place, time, not exact))

    def _know_until(self, place: Var, time: Value) -> None:
        k = self.k
        going = k.var("knowing", self._is_earlier(place, time, self.exact), BOOL)
        with k.while_(going):
            self._know(place)
            k.set(going, self._is_earlier(place, time, self.exact))

    def _is_earlier(self, place: Var, time: Value, equal: bool) -> Value:
        """Whether there is a right row at a place, and it is before a time, or at it if `equal`."""
        at = self.right[maximum(place - (place >= self.right_end).to(I64), const(0, I64))]
        return (place < self.right_end) & (at <= time if equal else at < time)

    def _answer(self, place: Var) -> None:
        """Give a right row to the left rows of its key that wait."""
        k = self.k
        key = k.var("key_asked", self.right_keys[place])
        with k.if_(self.repeated[place].eq(0)):
            row = k.var("waiting", self.first[key])
            with k.while_(row >= 0):
                with k.if_(self._is_near(self.right[place] - self.left[maximum(row, const(0, I64))])):
                    k.store(self.after, row, place)
                k.set(row, self.links[row])
            k.store(self.first, key, NONE)
        k.set(place, place + 1)

    def _know(self, place: Var) -> None:
        k = self.k
        k.store(self.known, self.right_keys[place], place)
        k.set(place, place + 1)

    def _is_near(self, apart: Value) -> Value:
        return Bitcast(apart, U64) <= Bitcast(self.reach, U64)

    # -- left rows -----------------------------------------------------------------------------------

    def _wait(self, row: Value) -> None:
        k = self.k
        key = k.var("key", self.left_keys[row])
        k.store(self.before, row, NONE)
        k.store(self.after, row, NONE)
        k.store(self.links, row, NONE)
        with k.if_(key >= 0):
            if self.nearest:
                known = k.var("last_known", self.known[key])
                apart = self.left[row] - self.right[maximum(known, const(0, I64))]
                with k.if_((known >= 0) & self._is_near(apart)):
                    k.store(self.before, row, known)
            with k.if_(self.first[key] < 0):
                k.store(self.first, key, row)
            with k.else_():
                k.store(self.links, self.last[key], row)
            k.store(self.last, key, row)

    def _release(self) -> None:
        """Write the right rows of the left rows that leave, in order."""
        k = self.k
        row, made = k.var("leaving", self.marks[WAITING]), k.var("made", 0)
        going = k.var("more", row < self.left_end, BOOL)
        with k.while_(going):
            k.set(going, self._is_final(row))
            with k.if_(going):
                k.store(self.found, made, self._nearer(row))
                key = k.var("key_left", self.left_keys[row])
                with k.if_(key >= 0), k.if_(self.first[key].eq(row)):
                    k.store(self.first, key, self.links[row])
                k.set(row, row + 1)
                k.set(made, made + 1)
                k.set(going, row < self.left_end)
        k.store(self.marks, WAITING, row)

    def _is_final(self, row: Value) -> Value:
        """Whether no nearer right row can come: it is known, too far away, or as far as the last one before."""
        k = self.k
        since = k.var(
            "since", Bitcast(self.watermark - self.left[row], U64)
        )  # the row is before the watermark
        final = self.closing.ne(0) | (self.after[row] >= 0)
        final = final | (self.reach >= 0) & (since > Bitcast(self.reach, U64))
        if self.nearest:
            before = k.var("before_it", self.before[row])
            apart = Bitcast(self.left[row] - self.right[maximum(before, const(0, I64))], U64)
            final = final | (before >= 0) & (apart < since)
        return k.var("final", final, BOOL)

    def _nearer(self, row: Value) -> Value:
        """The nearer one of the right rows before and after; of two as far away, the one after."""
        k = self.k
        after = k.var("after_it", self.after[row])
        if not self.nearest:
            return after
        before = k.var("before_it", self.before[row])
        time = self.left[row]
        ahead = Bitcast(self.right[maximum(after, const(0, I64))] - time, U64)
        behind = Bitcast(time - self.right[maximum(before, const(0, I64))], U64)
        return select((before < 0) | (after >= 0) & (ahead <= behind), after, before)
