"""Limits on one caller."""

import random
import time
import tracemalloc

import anyio
import pytest

from holdfast.errors import InvalidRequest
from holdfast.server import limits
from holdfast.server.errors import TooLarge, TooLate, TooMany
from holdfast.server.limits import Budget, RateLimit, Slots, check_declared_size, check_depth, network_of


class Time:
    at_ms = 0

    def monotonic_ms(self):
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


@pytest.mark.parametrize("piece", [b'"\\"', b"\\\\", b'"', b"[]", b'"a",', b"x"])
def test_a_large_body_is_looked_through_in_one_pass(piece):
    """It once took seconds, and gigabytes, of the process that serves everybody."""
    body = piece * (4_000_000 // len(piece))
    began = time.process_time()

    check_depth(body, 3)

    assert time.process_time() - began < 2


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
                answers.append(await slots.run(None, anyio.from_thread.run, go.wait))
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


def test_a_caller_has_a_share_of_the_places_and_others_theirs():
    async def scenario():
        slots, go = Slots(2, "queries", share=1), anyio.Event()
        began = []

        def note(caller):
            began.append(caller)
            anyio.from_thread.run(go.wait)

        async with anyio.create_task_group() as group:
            for caller in ("greedy", "greedy", "greedy", "other"):
                group.start_soon(slots.run, caller, note, caller)
                await anyio.wait_all_tasks_blocked()
            while len(began) < 2:
                await anyio.sleep(0.01)
            found = list(began)
            go.set()
        return found, began

    first, all_of_them = anyio.run(scenario)

    assert first == ["greedy", "other"]
    assert sorted(all_of_them) == ["greedy", "greedy", "greedy", "other"]


def test_uploads_under_way_have_so_much_room_together():
    staged = Budget(10, "uploads", code="NO_ROOM")
    with staged.room() as first:
        first.take(6)
        with staged.room() as second, pytest.raises(TooMany):
            second.take(5)
    with staged.room() as third:
        third.take(10)


def depth_of(body):
    """As `check_depth` counts, a byte at a time."""
    depth = deepest = 0
    in_text = is_escaped = False
    for byte in body:
        if is_escaped:
            is_escaped = False
        elif byte == ord("\\"):
            is_escaped = True
        elif byte == ord('"'):
            in_text = not in_text
        elif not in_text and byte in b"[{":
            depth += 1
            deepest = max(depth, deepest)
        elif not in_text and byte in b"]}":
            depth -= 1
    return deepest


def test_depth_is_counted_across_the_borders_of_pieces(monkeypatch):
    chance = random.Random(22)
    monkeypatch.setattr(limits, "_DEPTH_PIECE", 7)
    for _ in range(3000):
        body = bytes(chance.choices(b'[]{}"\\\\a', k=chance.randrange(40)))
        deepest = depth_of(body)

        check_depth(body, deepest)
        if deepest:
            with pytest.raises(InvalidRequest):
                check_depth(body, deepest - 1)


@pytest.mark.parametrize("piece", [b'"ab', b'"a",', b"1,", b"{},", b'"\\"', b"\\"])
def test_a_large_body_is_looked_through_in_little_memory(piece):
    """Millions of small pieces were kept, some gigabytes of them."""
    body = piece * (4_000_000 // len(piece))
    tracemalloc.start()

    check_depth(body, 3)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_who_waits_for_a_place_until_the_deadline_is_told_then():
    async def scenario(share, holder):
        slots, go = Slots(1, "queries", share=share), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(slots.run, holder, anyio.from_thread.run, go.wait)
            await anyio.wait_all_tasks_blocked()
            began = time.monotonic()
            with pytest.raises(TooLate):
                await slots.run("late", print, "begun too late", deadline_s=began + 0.2)
            took = time.monotonic() - began
            go.set()
        # Nothing of the place that was waited for is lost.
        return took, await slots.run("late", lambda: "served", deadline_s=time.monotonic() + 60)

    for share, holder in ((None, None), (1, "late"), (1, "other")):
        took, answer = anyio.run(scenario, share, holder)
        assert 0.1 < took < 5
        assert answer == "served"


def test_nobody_has_more_than_a_share_of_the_room():
    budget = Budget(10, "bodies", share=6, code="NO_ROOM")
    with budget.room("greedy") as first, budget.room("greedy") as second:
        first.take(6)
        with pytest.raises(TooMany):
            second.take(1)
        with budget.room("other") as third:
            third.take(4)
            with pytest.raises(TooMany):
                third.take(1)
    with budget.room("greedy") as again:
        again.take(6)


def test_the_addresses_of_one_network_have_one_rate():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2%eth0")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
