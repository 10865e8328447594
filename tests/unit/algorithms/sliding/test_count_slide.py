"""Count windows without bounds in memory: every form gives every frame the aggregate of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import inf, nan
from typing import Any

import pytest

from penstock.algorithms.sliding import count_rows, plain
from penstock.algorithms.sliding.count_rows import (
    FRAMES_PER_CHUNK,
    lanes,
    longest_chain,
    running,
    short_rows,
    two_passes,
)
from penstock.algorithms.sliding.count_slide import (
    STREAMS,
    apart,
    count_slide,
    form_of,
    lightened,
    long_panes,
    panes,
    running_panes,
    short_panes,
)
from penstock.algorithms.sliding.frame_algorithms import LONGEST_CHAIN, light
from penstock.algorithms.sliding.slide import CountSlide, SlideScratch
from penstock.loop.abi import LANES
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Kernel, Value
from tests.unit.algorithms.running import run
from tests.unit.algorithms.sliding.subjects import SUBJECTS, Subject, outputs, read, same, writer
from tests.unit.codegen.compare import zeros

Form = Callable[[CountSlide], tuple[SlideScratch, ...]]
SHAPES = [(1, 1), (4, 1), (5, 1), (9, 1), (40, 1), (4, 4), (3, 5), (6, 3), (7, 3), (7, 4), (5, 2), (90, 30)]
SHAPES += [(100, 7), (80, 33), (132, 2), (72, 4)]
NAMES = ("wide sum", "least", "least float", "float sum", "affine maps", "last integer")
TRIED = [candidate for candidate in SUBJECTS if candidate.name in NAMES]


def forms(subject: Subject, size: int, every: int) -> Iterator[Form]:
    """List the forms that are correct for a shape, not only the one that is chosen."""
    yield count_slide
    if every >= size:
        yield apart
        return
    yield panes
    if light([subject.make()]):
        yield short_panes
        yield from (long_panes,) if size % every == 0 and size // every >= LANES and every <= LANES else ()
    if subject.algebra.take:
        yield running_panes
    if every == 1:
        yield from row_by_row(subject, size)


def row_by_row(subject: Subject, size: int) -> Iterator[Form]:
    yield two_passes
    if subject.algebra.remove:
        yield running
    if light([subject.make()]):
        yield short_rows
        yield from (lanes,) if size >= LANES else ()


CASES = [
    pytest.param(subject, shape, form, id=f"{subject.name}-{shape}-{form.__name__}")
    for subject in TRIED
    for shape in SHAPES
    for form in forms(subject, *shape)
]


@cache
def kernel_of(
    subject: Subject, shape: tuple[int, int], form: Form
) -> tuple[Kernel, tuple[SlideScratch, ...]]:
    k = KernelBuilder("counting")
    slide = a_slide(k, subject, shape, k.scalar("begin"), k.scalar("end"))
    with k.if_(slide.begin < slide.end):
        scratch = form(slide)
    return k.build(), scratch


def a_slide(
    k: KernelBuilder, subject: Subject, shape: tuple[int, int], begin: Value, end: Value
) -> CountSlide:
    monoid = subject.make()
    return CountSlide(k, *shape, begin, end, [monoid], subject.read(k), writer(k, monoid))


def check(subject: Subject, shape: tuple[int, int], form: Form, many: int, begin: int = 0) -> None:
    size, every = shape
    values = subject.rows((many - 1) * every + size if many else 0, seed=many)
    expected = list(plain.recompute(values, plain.count_frames(size, every, len(values)), subject.algebra))
    kernel, scratch = kernel_of(subject, shape, form)
    states = outputs(subject.make())
    memory = exact(subject.columns(values)) | {"begin": begin, "end": many}
    memory |= {name: zeros(type, many) for name, type in states}
    memory |= {value.buffer.name: zeros(value.buffer.type, value.length or 0) for value in scratch}
    after = run(kernel, memory)[1]
    for f in range(begin, many):
        found = subject.finish(tuple(read(after[name], f, type) for name, type in states))
        assert same(subject, found, expected[f]), (f, found, expected[f])


def sliced(cases: list[Any]) -> list[Any]:
    """Leave three in four of the cases to --campaign: compiling each takes a while."""
    return [
        case if place % 4 == 0 else pytest.param(*case.values, id=case.id, marks=pytest.mark.campaign)
        for place, case in enumerate(cases)
    ]


def exact(columns: dict[str, Any]) -> dict[str, Any]:
    """Cut columns to their rows, so that the interpreter sees a kernel read beyond the last frame."""
    return {name: column[:-1].copy() for name, column in columns.items()}


@pytest.mark.parametrize(("subject", "shape", "form"), sliced(CASES))
def test_every_frame_is_the_aggregate_of_its_rows(
    subject: Subject, shape: tuple[int, int], form: Form
) -> None:
    size, every = shape
    block = size // every or 1
    for many in sorted({0, 1, 2, 7, 8, block, block + 1, 2 * block + 3}):
        check(subject, shape, form, many)
    check(subject, shape, form, block + 2, begin=1)


@pytest.mark.parametrize("name", ["least", "last integer"])
@pytest.mark.parametrize("size", [187, 192, 195], ids=["over and tail", "panes alone", "a tail"])
def test_blocks_of_several_panes_hand_on_what_they_know(name: str, size: int) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    for many in (9, size - 3, 2 * size + 20):
        check(subject, (size, 1), lanes, many)


def test_blocks_too_long_for_the_cache_make_their_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "last integer")
    kernel_of.cache_clear()
    monkeypatch.setattr(count_rows, "_CACHE", 0)
    for size in (187, 192):
        assert all("kept" not in value.buffer.name for value in kernel_of(subject, (size, 1), lanes)[1])
        check(subject, (size, 1), lanes, 2 * size + 20)
    kernel_of.cache_clear()


@pytest.mark.parametrize("name", ["float sum", "least float"])
def test_panes_of_floats_join_stretch_by_stretch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    kernel_of.cache_clear()
    monkeypatch.setattr(count_rows, "PANES_PER_SWEEP", 2)
    for many in (9, 160, 500):
        check(subject, (187, 1), count_slide, many)
    kernel_of.cache_clear()


def test_no_sum_of_floats_is_the_end_of_a_long_chain() -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "float sum")
    k = KernelBuilder("chains")
    for size in (8, 1 << 10, 1 << 21, 1 << 27):
        slide = lightened(a_slide(k, subject, (size, 1), k.scalar("begin"), k.scalar("end")))
        assert len(slide.monoids[0].states) == 1
        assert longest_chain(slide) <= LONGEST_CHAIN
    slide = lightened(a_slide(k, subject, (1 << 31, 1), k.scalar("begin"), k.scalar("end")))
    assert len(slide.monoids[0].states) == 2, "compensated where plain additions would not do"


@pytest.mark.parametrize("shape", [(2, 1), (40, 1), (3, 2), (4, 4), (70, 4), (90, 30)], ids=str)
@pytest.mark.parametrize("filling", [nan, inf, -0.0, 1.0], ids=str)
def test_the_least_float_of_frames_without_numbers_is_nan(shape: tuple[int, int], filling: float) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "least float")
    check(replace(subject, draw=lambda dice: (filling,)), shape, count_slide, 11)
    check(replace(subject, draw=lambda dice: (dice.choice([nan, filling]),)), shape, count_slide, 11)


@pytest.mark.parametrize("name", ["least", "last integer", "float sum"])
@pytest.mark.parametrize("shape", [(11, 1), (7, 3), (36, 4)], ids=str)
def test_chunks_of_short_frames_hand_on_what_they_know(name: str, shape: tuple[int, int]) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    for many in (FRAMES_PER_CHUNK, 2 * FRAMES_PER_CHUNK + 40):
        check(subject, shape, count_slide, many)


@pytest.mark.parametrize("name", ["least", "least float", "float sum", "wide sum"])
@pytest.mark.parametrize("shape", [(33, 33), (40, 41), (66, 33), (160, 160)], ids=str)
def test_panes_that_are_read_side_by_side_are_each_of_its_own_rows(name: str, shape: tuple[int, int]) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    for many in (1, STREAMS - 1, STREAMS, 2 * STREAMS + 3):
        check(subject, shape, count_slide, many)
    check(subject, shape, count_slide, 2 * STREAMS + 3, begin=2)


@pytest.mark.parametrize("name", ["least", "least float", "float sum"])
@pytest.mark.parametrize("shape", [(64, 32), (90, 36)], ids=str)
def test_chunks_of_panes_are_read_side_by_side(name: str, shape: tuple[int, int]) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    check(subject, shape, count_slide, FRAMES_PER_CHUNK + STREAMS + 1)


@pytest.mark.parametrize(
    ("shape", "many"),
    [
        ((160, 160), 11),
        ((320, 160), 11),
        ((64, 32), FRAMES_PER_CHUNK + 11),
        ((90, 36), FRAMES_PER_CHUNK + 11),
    ],
    ids=str,
)
def test_a_sum_of_floats_is_the_same_in_every_bit_wherever_a_call_begins(
    shape: tuple[int, int], many: int
) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "float sum")
    size, every = shape
    values = subject.rows((many - 1) * every + size, seed=1)
    whole = totals(subject, shape, values, 0, many)
    for begin, end in ((0, 1), (1, many), (STREAMS, many - 1), (many - 1, many)):
        assert totals(subject, shape, values, begin, end)[begin:end] == whole[begin:end]


def totals(subject: Subject, shape: tuple[int, int], values: list[Any], begin: int, end: int) -> list[Any]:
    """What a call writes, by frame."""
    kernel, scratch = kernel_of(subject, shape, count_slide)
    states = outputs(subject.make())
    memory = exact(subject.columns(values)) | {"begin": begin, "end": end}
    memory |= {name: zeros(type, end) for name, type in states}
    memory |= {value.buffer.name: zeros(value.buffer.type, value.length or 0) for value in scratch}
    after = run(kernel, memory)[1]
    return [tuple(read(after[name], f, type) for name, type in states) for f in range(end)]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > shape[1]], ids=str)
def test_the_plain_forms_agree_with_recomputation(shape: tuple[int, int]) -> None:
    size, every = shape
    subject = next(candidate for candidate in SUBJECTS if candidate.name == "affine maps")
    values = subject.rows(5 * size, seed=1)
    expected = list(plain.recompute(values, plain.count_frames(*shape, len(values)), subject.algebra))
    assert list(plain.panes(values, size, every, subject.algebra)) == expected
    assert list(plain.running_panes(values, size, every, subject.algebra)) == expected


@pytest.mark.parametrize(
    ("name", "shape", "form"),
    [
        ("least", (4, 4), apart),
        ("least", (3, 7), apart),
        ("least", (8, 1), short_rows),
        ("least", (1024, 1), lanes),
        ("float sum", (8, 1), short_rows),
        ("last float", (8, 1), two_passes),
        ("wide sum", (8, 1), running),
        ("wide sum", (8, 3), running_panes),
        ("float sum", (8, 3), short_panes),
        ("least", (1024, 2), long_panes),
        ("least", (1026, 4), panes),
        ("least", (2048, 8), panes),
        ("float sum", (1024, 16), short_panes),
        ("float sum", (1040, 16), panes),
        ("last float", (8, 3), panes),
    ],
)
def test_the_form_follows_from_shape_and_algebra(name: str, shape: tuple[int, int], form: Form) -> None:
    subject = next(candidate for candidate in SUBJECTS if candidate.name == name)
    k = KernelBuilder("choosing")
    slide = a_slide(k, subject, shape, k.scalar("begin"), k.scalar("end"))
    assert form_of(lightened(slide)) is form
