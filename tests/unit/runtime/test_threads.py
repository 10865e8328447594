"""Threads that stay: all work is done once, whatever fails is told, and a fork has threads of its own."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.runtime.threads import ahead, run_on_threads


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_all_work_is_done_once(count, threads):
    done = []
    run_on_threads([lambda place=place: done.append(place) for place in range(count)], threads)
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize("place", [0, 3])
def test_what_one_raises_is_raised_when_the_others_have_ended(place):
    done = []

    def work(number):
        if number == place:
            raise ValueError(f"number {number}")
        done.append(number)

    with pytest.raises(ValueError, match=f"number {place}"):
        run_on_threads([lambda number=number: work(number) for number in range(4)])
    assert len(done) == len(set(done)) <= 3


def test_work_may_itself_run_on_threads():
    done = []
    inner = [lambda place=place: done.append(place) for place in range(3)]
    run_on_threads([lambda: run_on_threads(inner) for _ in range(300)])
    assert len(done) == 900


def test_two_run_at_the_same_time():
    met = threading.Barrier(2)
    run_on_threads([met.wait, met.wait])


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("lengths", [[], [0], [3], [0, 2, 0, 1], [1] * 20])
def test_iterators_that_are_begun_ahead_give_their_values_in_order(lengths, threads):
    made = ahead(
        (iter([(place, index) for index in range(length)]) for place, length in enumerate(lengths)), threads
    )
    assert list(made) == [(place, index) for place, length in enumerate(lengths) for index in range(length)]


def test_no_more_iterators_are_begun_than_asked_for():
    begun, ended, most = [], [], []

    def numbers(place):
        begun.append(place)
        most.append(len(begun) - len(ended))
        yield place
        ended.append(place)

    assert list(ahead(map(numbers, range(12)), 2)) == list(range(12))
    assert max(most) <= 3


def test_two_iterators_are_begun_at_the_same_time():
    met = threading.Barrier(2)
    assert len(list(ahead((_meeting(met) for _ in range(2)), 2))) == 2


def _meeting(met):
    yield met.wait()


@pytest.mark.parametrize("place", [0, 3])
def test_what_an_iterator_raises_is_raised_in_its_turn(place):
    def numbers(number):
        if number == place:
            raise ValueError(f"number {number}")
        yield number

    taken = []
    with pytest.raises(ValueError, match=f"number {place}"):
        taken.extend(ahead(map(numbers, range(6)), 2))
    assert taken == list(range(place))


def test_iterators_may_be_left_before_their_end():
    made = ahead((iter([place]) for place in range(10)), 2)
    assert next(made) == 0
    made.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own():
    run_on_threads([int, int])
    child = os.fork()
    if child == 0:
        done = []
        run_on_threads([lambda: done.append(1), lambda: done.append(2)])
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
