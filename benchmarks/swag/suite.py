"""Choose what a run of `python -m benchmarks swag` consists of, and say what it must reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from benchmarks.figures import Case, Figure, named
from benchmarks.options import SuiteOptions
from benchmarks.reference import NoCompilerError
from benchmarks.reference.swag import SwagReference
from benchmarks.swag.catalogue import QUESTIONS, overlap_case
from benchmarks.swag.questions import question_case
from benchmarks.swag.subjects import MAIN, OTHERS, Aggregate, Shape, Subject, numbers, spiky
from benchmarks.swag.sweeps import KERNEL, Point, Progress, count_case, time_case

SIZES = tuple(8 << step for step in range(0, 19, 2))
SLIDES = tuple(1 << step for step in range(11))
UNEVEN = ((1024, 96), (100, 7), (1000, 250), (90, 30))
SECONDS = 64
SECOND_SLIDES = (1, 2, 4, 8, 16, 32, 64)
SIZE = 1024
BARS = {1: 170.0, 16: 820.0, 64: 2_600.0, 256: 5_000.0, 1024: 4_900.0}
"""Millions of int32 tuples a second at each slide, on a core that reads 25 GB/s."""
FLAT = 2.0
# Kernels take some milliseconds: in few rounds one of two may never have met a quiet moment.
KERNEL_ROUNDS = 5
# Whole queries need a round or two until the memory they work in has been used before.
WHOLE_ROUNDS = 2

BY_SIZE, BY_SLIDE = "slide 1, by size", f"size {SIZE}, by slide"
BY_SHAPE, BY_RATIO = f"size {SIZE}, slide 1, by order of data", "slides that do not divide, and some that do"


def swag_cases(
    options: SuiteOptions, reference: SwagReference | NoCompilerError, progress: Progress
) -> list[Case]:
    """Run the sweeps, then the questions."""
    sweeps = chain.from_iterable(
        sweep_cases(options, reference, subject, progress) for subject in (*MAIN, *OTHERS)
    )
    return [
        *sweeps,
        *spiky_cases(options, reference, progress),
        *whole_cases(options, progress),
    ]


def sweep_cases(
    options: SuiteOptions, reference: SwagReference | NoCompilerError, subject: Subject, progress: Progress
) -> Iterator[Case]:
    """All sweeps of one subject over one array; the orders of data only where order could matter."""
    data = numbers(Shape.RANDOM, subject.dtype, options.rows)
    rounds = options.repeat * (1 if options.quick else KERNEL_ROUNDS)
    for point in points(subject, options):
        yield count_case(subject, data, point, reference, rounds, progress)
    if subject.aggregate is not Aggregate.MIN:
        return
    for place, shape in enumerate(Shape):
        ordered = numbers(shape, subject.dtype, options.rows)
        point = Point(BY_SHAPE, shape, place, SIZE, 1, whole=False)
        yield count_case(subject, ordered, point, reference, rounds, progress)


def points(subject: Subject, options: SuiteOptions) -> Iterator[Point]:
    """The points of the sweeps over sizes and slides: fewer for subjects that set no bar, or if quick."""
    main = subject in MAIN
    every = (1 if main else 3) * (3 if options.quick else 1)
    whole = main and not options.quick
    for place, size in enumerate(SIZES[::every]):
        if size <= options.rows:  # the whole query writes bounds too, which takes far longer than the kernels
            yield Point(BY_SIZE, f"{size:,}", size, size, 1, whole=whole and place % 3 == 0)
    for slide in SLIDES if main and not options.quick else tuple(BARS):
        bar = BARS.get(slide) if main else None
        yield Point(BY_SLIDE, f"{slide:,}", slide, SIZE, slide, bar, whole=main)
    for place, (size, slide) in enumerate(UNEVEN):
        yield Point(BY_RATIO, f"{size}/{slide}", place, size, slide, whole=whole)


def spiky_cases(
    options: SuiteOptions, reference: SwagReference | NoCompilerError, progress: Progress
) -> Iterator[Case]:
    """Time windows over arrivals of very uneven rate."""
    table = spiky(options.rows)
    for every in SECOND_SLIDES[:: 3 if options.quick else 1]:
        yield time_case(table, SECONDS, every, reference, options.repeat, progress)


def whole_cases(options: SuiteOptions, progress: Progress) -> Iterator[Case]:
    """Overlap, and the questions."""
    rounds = options.repeat * (1 if options.quick else WHOLE_ROUNDS)
    for keys in (1, 100):
        yield overlap_case(options.rows, keys, options.threads, rounds, progress)
    for asked in QUESTIONS:
        yield question_case(asked, options.rows, options.peers, options.threads, rounds, progress)


def flat_figures(cases: Sequence[Case]) -> tuple[Figure, ...]:
    """How much the kernel's speed differs over sizes, and over orders of data."""
    sweeps = dict.fromkeys(case.sweep for case in cases if case.sweep.startswith((BY_SIZE, BY_SHAPE)))
    return tuple(flat_figure(sweep, [case for case in cases if case.sweep == sweep]) for sweep in sweeps)


def flat_figure(sweep: str, cases: Sequence[Case]) -> Figure:
    """The slowest point of a sweep against its fastest."""
    times = [time / case.rows for case in cases if (time := named(case.outcomes, KERNEL))]
    spread = max(times) / min(times) if len(times) > 1 else None
    return Figure(f"{sweep}: kernel, fastest / slowest", spread, FLAT, at_least=False)
