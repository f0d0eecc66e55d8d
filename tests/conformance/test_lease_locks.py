"""Locks that are files keep their promises on every store."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from concurrency.lock_user import FORMS, real_lock
from holdfast.errors import Fenced, LockTimeout

THREADS = 4
ROUNDS = 5


@pytest.fixture(params=sorted(FORMS))
def form(request):
    return request.param


def test_threads_are_never_inside_a_lock_together(reopen, form):
    counter = [0]

    def run(_):
        lock = real_lock(reopen(), form)
        for _ in range(ROUNDS):
            with lock.hold() as hold:
                count = counter[0]
                hold.refuse_if_lost()
                counter[0] = count + 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))

    assert counter == [THREADS * ROUNDS]


def test_a_lock_that_is_held_is_granted_to_nobody_else_until_it_is_given_back(reopen, form):
    with real_lock(reopen(), form).hold(), pytest.raises(LockTimeout, match="holder: process"):
        real_lock(reopen(), form, patience_ms=0).hold().__enter__()

    with real_lock(reopen(), form, patience_ms=0).hold() as hold:
        hold.refuse_if_lost()


def test_a_holder_whose_lock_was_removed_is_refused(reopen, form):
    with real_lock(reopen(), form).hold() as hold:
        reopen().delete(FORMS[form].path)

        with pytest.raises(Fenced):
            hold.refuse_if_lost()
