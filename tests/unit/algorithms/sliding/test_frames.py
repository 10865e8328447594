"""Recompute, subtract-on-evict and two stacks give every frame the aggregate of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.sliding import plain
from penstock.algorithms.sliding.frame_algorithms import prefix_sums, recompute, subtract_on_evict, two_stacks
from penstock.algorithms.sliding.plain import Frames
from penstock.algorithms.sliding.slide import Slide, SlideScratch
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Kernel
from tests.unit.algorithms.running import run
from tests.unit.algorithms.sliding.subjects import (
    PROGRAMS,
    SUBJECTS,
    Subject,
    bounds,
    end,
    fifo,
    frame_buffers,
    longest,
    outputs,
    read,
    same,
    writer,
)
from tests.unit.codegen.compare import zeros

Algorithm = Callable[[Slide], tuple[SlideScratch, ...]]
TWINS: dict[Algorithm, Callable[..., Iterator[Any]]] = {
    recompute: plain.recompute,
    subtract_on_evict: plain.subtract_on_evict,
    two_stacks: plain.two_stacks,
    prefix_sums: plain.prefix_sums,
}
PAIRS = [
    pytest.param(subject, algorithm, dense, id=f"{subject.name}-{algorithm.__name__}{'-dense' * dense}")
    for subject in SUBJECTS
    for algorithm in TWINS
    if algorithm is not subtract_on_evict or subject.algebra.remove
    if algorithm is not prefix_sums or subject.make().prefix
    for dense in ((False,) if algorithm is recompute else (False, True))
]


@cache
def kernel_of(
    subject: Subject, algorithm: Algorithm, dense: bool = False
) -> tuple[Kernel, tuple[SlideScratch, ...]]:
    k = KernelBuilder("sliding")
    monoid = subject.make()
    lo, hi = frame_buffers(k)
    begin, stop = k.scalar("begin"), k.scalar("end")
    slide = Slide(k, lo, hi, begin, stop, [monoid], subject.read(k), writer(k, monoid), dense)
    scratch = algorithm(slide)
    return k.build(), scratch


def scratch_memory(scratch: tuple[SlideScratch, ...], frames: Frames) -> dict[str, Any]:
    lengths = {False: max(longest(frames), 1), True: end(frames) + 1}
    return {value.buffer.name: zeros(value.buffer.type, lengths[value.whole]) for value in scratch}


def aggregated(
    subject: Subject, algorithm: Algorithm, dense: bool, rows: list[Any], frames: Frames
) -> list[Any]:
    """Give the result of every frame."""
    kernel, scratch = kernel_of(subject, algorithm, dense)
    states = outputs(subject.make())
    memory = subject.columns(rows) | bounds(frames) | {"begin": 0, "end": len(frames)}
    memory |= {name: zeros(type, max(len(frames), 1)) for name, type in states}
    memory |= scratch_memory(scratch, frames)
    after = run(kernel, memory)[1]
    return [
        subject.finish(tuple(read(after[name], f, type) for name, type in states)) for f in range(len(frames))
    ]


def check(subject: Subject, algorithm: Algorithm, dense: bool, frames: Frames, seed: int) -> None:
    rows = subject.rows(end(frames), seed)
    expected = list(plain.recompute(rows, frames, subject.algebra))
    assert list(TWINS[algorithm](rows, frames, subject.algebra)) == expected
    found = aggregated(subject, algorithm, dense, rows, frames)
    for frame, one, other in zip(frames, found, expected, strict=True):
        assert same(subject, one, other), (frame, one, other)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("subject", "algorithm", "dense"), PAIRS)
def test_every_frame_of_a_known_program_is_the_aggregate_of_its_rows(
    subject: Subject, algorithm: Algorithm, dense: bool, program: str
) -> None:
    check(subject, algorithm, dense, PROGRAMS[program], seed=1)


@pytest.mark.parametrize(("subject", "algorithm", "dense"), PAIRS)
@given(frames=fifo(), seed=st.integers(0, 1000))
def test_every_frame_of_a_random_program_is_the_aggregate_of_its_rows(
    subject: Subject, algorithm: Algorithm, dense: bool, frames: Frames, seed: int
) -> None:
    check(subject, algorithm, dense, frames, seed)


@pytest.mark.parametrize("algorithm", TWINS)
def test_frames_outside_the_span_are_left_alone(algorithm: Algorithm) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "count")
    kernel, scratch = kernel_of(subject, algorithm)
    frames = PROGRAMS["row by row"]
    memory = subject.columns([(1,)] * end(frames)) | bounds(frames) | {"begin": 3, "end": 7}
    memory |= {name: zeros(type, len(frames)) for name, type in outputs(subject.make())}
    memory |= scratch_memory(scratch, frames)
    after = run(kernel, memory)[1]
    assert after["out"].tolist() == [5 if 3 <= f < 7 else 0 for f in range(len(frames))]
