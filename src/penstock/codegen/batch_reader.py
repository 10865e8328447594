"""Native batch reader: the addresses of a batch's columns, and its watermark, in one call.

pyarrow exports a batch by the Arrow C data interface; this code reads the exported struct. To get every
column and its buffers from pyarrow takes several times as long as a kernel takes for a hundred rows.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.values import ENTRY
from penstock.runtime.buffers import (
    BEHIND,
    COLUMNS,
    FIRST_COLUMN,
    FIRST_WIDTH,
    LATENESS,
    TIME,
    WATERMARK,
)

if TYPE_CHECKING:
    from penstock.codegen.target import Loaded

# The struct of an array by the Arrow C data interface, in words.
_ARRAY_WORDS = 10
_LENGTH, _NULLS, _OFFSET, _BUFFER_COUNT, _BUFFERS, _CHILDREN, _RELEASE = 0, 1, 2, 3, 5, 6, 8
_LANES = 8  # SIMD lanes
_MOST = (1 << 63) - 2  # no row moves the watermark to the end of time


def _word(base: str, place: int | str, name: str, kind: str = "i64") -> str:
    """Load the word at a place."""
    return (
        f"  %{name}.at = getelementptr i64, ptr {base}, i64 {place}\n"
        f"  %{name} = load {kind}, ptr %{name}.at\n"
    )


# Times in order, of which the first is not behind, need no look at each row: rows are compared with their neighbours,
# in SIMD lanes. Else the watermark is followed row by row.
_TEXT = f"""
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.ssub.sat.i64(i64, i64)
declare i64 @llvm.vector.reduce.or.v{_LANES}i64(<{_LANES} x i64>)

define i64 @{ENTRY}(ptr %array, ptr %layout, ptr noalias %words) {{
enter:
{_word("%array", _LENGTH, "rows")}
{_word("%array", _OFFSET, "outer")}
{_word("%array", _CHILDREN, "children", "ptr")}
{_word("%array", _RELEASE, "release", "ptr")}
{_word("%layout", COLUMNS, "columns")}
{_word("%layout", TIME, "time")}
{_word("%layout", LATENESS, "lateness")}
  br label %next

next:
  %c = phi i64 [ 0, %enter ], [ %c.next, %put ]
  %more = icmp slt i64 %c, %columns
  br i1 %more, label %column, label %read

column:
  %width.place = add i64 %c, {FIRST_WIDTH}
{_word("%layout", "%width.place", "width")}
{_word("%children", "%c", "child", "ptr")}
{_word("%child", _NULLS, "nulls")}
{_word("%child", _OFFSET, "inner")}
{_word("%child", _BUFFERS, "buffers", "ptr")}
{_word("%child", _BUFFER_COUNT, "buffer.count")}
  %no.nulls = icmp eq i64 %nulls, 0
  %has.bitmap = icmp ne i64 %buffer.count, 0
  br i1 %has.bitmap, label %look, label %varies

look:
{_word("%buffers", 0, "bitmap")}
  %no.bitmap = icmp eq i64 %bitmap, 0
  %plain = or i1 %no.bitmap, %no.nulls
  %fixed = icmp ne i64 %width, 0
  br i1 %fixed, label %start, label %varies

varies:
  %none = phi i1 [ %no.nulls, %column ], [ %plain, %look ]
  %marked = zext i1 %none to i64
  br label %put

start:
{_word("%buffers", 1, "values")}
  %first = add i64 %inner, %outer
  %skipped = mul i64 %first, %width
  %value = add i64 %values, %skipped
  %seen = select i1 %plain, i64 %value, i64 0
  br label %put

put:
  %address = phi i64 [ %marked, %varies ], [ %seen, %start ]
  %word.place = add i64 %c, {FIRST_COLUMN}
  %word.at = getelementptr i64, ptr %words, i64 %word.place
  store i64 %address, ptr %word.at
  %c.next = add i64 %c, 1
  br label %next

read:
  call void %release(ptr %array)
  %time.place = add i64 %time, {FIRST_COLUMN}
{_word("%words", "%time.place", "times.word")}
{_word("%words", WATERMARK, "before")}
  %times = inttoptr i64 %times.word to ptr
  %readable = icmp ne i64 %times.word, 0
  %some = icmp sgt i64 %rows, 0
  %may = and i1 %readable, %some
  br i1 %may, label %ends, label %refuse

refuse:
  ret i64 -1

ends:
  %last = sub i64 %rows, 1
{_word("%times", 0, "earliest")}
{_word("%times", "%last", "latest")}
  %begins.behind = icmp slt i64 %earliest, %before
  br i1 %begins.behind, label %slow, label %order

order:
  %blocks.end = sub i64 %last, {_LANES}
  br label %block.next

block.next:
  %b = phi i64 [ 0, %order ], [ %b.next, %block ]
  %falls.before = phi <{_LANES} x i64> [ zeroinitializer, %order ], [ %falls.after, %block ]
  %another = icmp sle i64 %b, %blocks.end
  br i1 %another, label %block, label %blocks.done

block:
  %these.at = getelementptr i64, ptr %times, i64 %b
  %those.at = getelementptr i64, ptr %these.at, i64 1
  %these = load <{_LANES} x i64>, ptr %these.at, align 8
  %those = load <{_LANES} x i64>, ptr %those.at, align 8
  %fall = icmp slt <{_LANES} x i64> %those, %these
  %fall.words = sext <{_LANES} x i1> %fall to <{_LANES} x i64>
  %falls.after = or <{_LANES} x i64> %falls.before, %fall.words
  %b.next = add i64 %b, {_LANES}
  br label %block.next

blocks.done:
  %any = call i64 @llvm.vector.reduce.or.v{_LANES}i64(<{_LANES} x i64> %falls.before)
  br label %pair.next

pair.next:
  %p = phi i64 [ %b, %blocks.done ], [ %p.next, %pair ]
  %back = phi i64 [ %any, %blocks.done ], [ %back.next, %pair ]
  %neighbours = icmp slt i64 %p, %last
  br i1 %neighbours, label %pair, label %judge

pair:
  %p.next = add i64 %p, 1
{_word("%times", "%p", "this")}
{_word("%times", "%p.next", "that")}
  %falls = icmp slt i64 %that, %this
  %falls.word = zext i1 %falls to i64
  %back.next = or i64 %back, %falls.word
  br label %pair.next

judge:
  %in.order = icmp eq i64 %back, 0
  br i1 %in.order, label %ordered, label %slow

ordered:
  %reached = call i64 @llvm.ssub.sat.i64(i64 %latest, i64 %lateness)
  %ahead = call i64 @llvm.smax.i64(i64 %before, i64 %reached)
  br label %leave

slow:
  br label %row

row:
  %r = phi i64 [ 0, %slow ], [ %r.next, %row ]
  %mark = phi i64 [ %before, %slow ], [ %mark.next, %row ]
  %late = phi i1 [ false, %slow ], [ %late.next, %row ]
{_word("%times", "%r", "t")}
  %lag = call i64 @llvm.ssub.sat.i64(i64 %t, i64 %lateness)
  %mark.next = call i64 @llvm.smax.i64(i64 %mark, i64 %lag)
  %misses = icmp slt i64 %t, %mark.next
  %late.next = or i1 %late, %misses
  %r.next = add nuw nsw i64 %r, 1
  %done = icmp eq i64 %r.next, %rows
  br i1 %done, label %leave, label %row

leave:
  %raised = phi i64 [ %ahead, %ordered ], [ %mark.next, %row ]
  %found = phi i1 [ false, %ordered ], [ %late.next, %row ]
  %below = call i64 @llvm.smin.i64(i64 %raised, i64 {_MOST})
  %after = call i64 @llvm.smax.i64(i64 %below, i64 %before)
  %mark.at = getelementptr i64, ptr %words, i64 {WATERMARK}
  store i64 %after, ptr %mark.at
  %behind.at = getelementptr i64, ptr %words, i64 {BEHIND}
  %behind = zext i1 %found to i64
  store i64 %behind, ptr %behind.at
  ret i64 %rows
}}
"""
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class BatchReader:
    """The compiled reader: built on first use, never unloaded, since threads may be executing it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: Loaded | None = None
        self._call: Callable[..., int] | None = None

    def __call__(self, batch: Any, layout: array[int], words: array[int]) -> bool:
        """Read a batch into words; return whether the watermark could be computed."""
        call = self._call or self._made()
        exported = array("q", _EMPTY)
        at = exported.buffer_info()[0]
        batch._export_to_c(at)  # noqa: SLF001 - the public form returns capsules, and exports the schema too
        return call(at, layout.buffer_info()[0], words.buffer_info()[0]) >= 0

    @property
    def address(self) -> int:
        """The address of the code, for native callers."""
        self._made()
        assert self._loaded is not None
        return self._loaded.address

    def _made(self) -> Callable[..., int]:
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415 - loads LLVM

        with self._lock:
            if self._call is None:
                self._loaded = Loaded(to_object(_TEXT, OptimisationLevel.QUICK))
                self._call = _SIGNATURE(self._loaded.address)
            return self._call


_EMPTY = array("q", [0] * _ARRAY_WORDS)
BATCH_READER = BatchReader()
