"""Limits on one caller."""

import anyio
import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.errors import TooLarge, TooMany
from holdfast.server.limits import RateLimit, Slots, check_declared_size, check_depth


class Time:
    at_ms = 0

    def elapsed_ms(self):
        return self.at_ms


def test_a_caller_gets_a_burst_and_then_its_rate_and_others_their_own():
    time = Time()
    rate = RateLimit(5, time)
    for _ in range(10):
        rate.admit("a")

    with pytest.raises(TooMany):
        rate.admit("a")
    rate.admit("b")
    time.at_ms += 200
    rate.admit("a")
    with pytest.raises(TooMany):
        rate.admit("a")


@pytest.mark.parametrize(
    ("body", "is_deep"),
    [
        (b"[[[]]]", False),
        (b"[[[[]]]]", True),
        (b'{"a": {"b": {"c": {}}}}', True),
        (b'["[[[[[[", "\\"[[[[["]', False),
        (b'["\\\\", [[[[1]]]]]', True),
        (b'"[[[[[[', False),
        (b"[],[],[],[],[]", False),
        (b"", False),
    ],
)
def test_depth_counts_brackets_outside_texts(body, is_deep):
    if is_deep:
        with pytest.raises(InvalidRequest, match="deeply"):
            check_depth(body, 3)
    else:
        check_depth(body, 3)


def test_a_body_that_announces_too_much_is_refused_unread():
    check_declared_size("10", 10)
    check_declared_size(None, 10)
    check_declared_size("many", 10)
    with pytest.raises(TooLarge):
        check_declared_size("11", 10)


def test_beyond_the_places_a_few_wait_and_the_rest_are_turned_away():
    async def scenario():
        slots, go = Slots(1, "queries"), anyio.Event()
        answers = []

        async def ask():
            try:
                answers.append(await slots.run(anyio.from_thread.run, go.wait))
            except TooMany:
                answers.append("turned away")

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            busy = slots.busy
            go.set()
        return busy, answers

    busy, answers = anyio.run(scenario)

    assert busy == 1
    assert answers.count("turned away") == 20 - 1 - 8
