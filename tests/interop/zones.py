"""In zones on both sides of UTC, with tables of local time and of UTC, no row is lost."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import pairwise
from zoneinfo import ZoneInfo

import holdfast
from holdfast.clock import SystemClock
from interop.engines import Engine
from interop.shapes import TRIPS, trips
from interop.talk import Talk, check, move_us_to, refusal

ZONES = ("America/New_York", "UTC", "Asia/Kolkata")
TIMELINE_ZONES = ("LOCAL", "UTC")


def _turns(talk: Talk, first: Engine, second: Engine) -> None:
    """By turns into one file group; then both read all rows, now, as of each turn, and what each changed."""
    path, fares, steps = talk.path(), {}, []
    for turn, engine in enumerate((first, second, first, second), 1):
        fares |= {"all": float(turn), f"k{turn}": float(turn)}
        rows = trips(("all", "paris", turn), (f"k{turn}", "paris", turn), ts=turn)
        steps.append((engine.write(path, TRIPS, "upsert", rows), dict(fares)))
    talk.same([instant for instant, _ in steps], sorted(instant for instant, _ in steps))
    talk.agree(path, fares)
    for instant, then in steps[1:3]:
        talk.agree(path, then, as_of=instant)
    (_, _), (since, _), (until, _), (_, _) = steps
    talk.agree_on_changes(path, {"k4", "all"}, since=until)
    talk.agree_on_changes(path, {"k3", "all"}, since=since, until=until)
    now = holdfast.open_table(path).to_arrow(as_of=dt.datetime.now(dt.UTC))
    talk.same(dict(zip(now["id"].to_pylist(), now["fare"].to_pylist(), strict=True)), fares)
    talk.sound(path)


@check(short=True)
def turns_in_three_zones_lose_no_row(talk: Talk) -> None:
    for n, zone in enumerate(ZONES):
        for m, timeline_zone in enumerate(TIMELINE_ZONES):
            with talk.in_zone(zone, timeline_zone):
                for first, second in talk.both_ways[(n + m) % 2 :: 2] if talk.is_short else talk.both_ways:
                    _turns(talk, first, second)


@check(short=True)
def a_process_of_ours_in_another_zone_than_hudi_is_refused_and_told_which(talk: Talk) -> None:
    for zone, ours, offset in (("America/New_York", "UTC", "UTC-0"), ("Asia/Kolkata", "UTC", "UTC+05:30")):
        with talk.in_zone(zone, "LOCAL"):
            path = talk.begun(talk.hudi, ("a", "paris", 1))
            move_us_to(ours)
            rows = trips(("b", "paris", 2))
            text = refusal(lambda path=path, rows=rows: talk.ours.write(path, TRIPS, "upsert", rows))
            talk.same(("Refused" in text, offset in text, "TZ" in text), (True, True, True))
            move_us_to(zone)
            talk.ours.write(path, TRIPS, "upsert", rows)
            # From now on the zone is recorded, and it does not matter where we are.
            move_us_to(ours)
            talk.ours.write(path, TRIPS, "upsert", trips(("c", "paris", 3)))
            talk.hudi.write(path, TRIPS, "upsert", trips(("d", "paris", 4)))
            talk.agree(path, {"a": 1, "b": 2, "c": 3, "d": 4})
            talk.sound(path)


@check(short=True)
def what_hudi_writes_into_its_own_past_is_named(talk: Talk) -> None:
    """Its writers are in two zones: the later write lies before the earlier one, and none reads its row."""
    with talk.in_zone("Asia/Kolkata", "LOCAL"):
        path = talk.begun(talk.hudi, ("a", "paris", 1))
        talk.hudi.write(path, TRIPS, "upsert", trips(("b", "paris", 2), ts=2))
        talk.hudi.move_to("UTC")
        frame = talk.hudi.frame(trips(("c", "paris", 3), ts=3))
        talk.hudi.save(frame, path, TRIPS, "upsert", None)
        talk.agree(path, {"a": 1, "b": 2})
        found = [f.kind for f in holdfast.open_table(path).verify().findings if f.severity == "damage"]
        talk.same(found, ["hidden"])


@check(short=True)
def a_table_lives_through_a_change_of_the_clock(talk: Talk) -> None:
    """Ours wrote before it, in the other half of the year; Hudi goes on now, and both know what was when."""
    zone = "America/New_York"
    with talk.in_zone(zone, "LOCAL"):
        path, then = talk.path(), _Then(_before_last_change(ZoneInfo(zone)))
        holdfast.create_table(
            path,
            name=TRIPS.name,
            record_key=TRIPS.record_key,
            partition_by=TRIPS.partition_by,
            ordering=TRIPS.ordering,
            properties={"hoodie.table.timeline.timezone": "LOCAL"},
        )
        early = holdfast.Table(replace(holdfast.open_table(path)._opened, clock=then))
        early.upsert(trips(("a", "paris", 1), ts=1))
        between = dt.datetime.fromtimestamp(then.now_ms() / 1000, dt.UTC)
        early.upsert(trips(("b", "paris", 2), ts=2))
        talk.hudi.write(path, TRIPS, "upsert", trips(("c", "paris", 3), ts=3))
        talk.ours.write(path, TRIPS, "upsert", trips(("d", "paris", 4), ts=4))
        talk.agree(path, {"a": 1, "b": 2, "c": 3, "d": 4})
        wall = between.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        talk.agree(path, {"a": 1}, as_of=wall)
        talk.same(holdfast.open_table(path).to_arrow(as_of=between)["id"].to_pylist(), ["a"])
        talk.sound(path)


class _Then(SystemClock):
    """A clock that is behind."""

    def __init__(self, moment: dt.datetime) -> None:
        self._behind_ms = super().now_ms() - int(moment.timestamp() * 1000)

    def now_ms(self) -> int:
        return super().now_ms() - self._behind_ms


def _before_last_change(zone: ZoneInfo) -> dt.datetime:
    """The noon before the zone's clock was changed last: no instant is made in the hour that comes twice."""
    noon = dt.datetime.now(zone).replace(hour=12)
    days = [noon - dt.timedelta(days=n) for n in range(1, 367)]
    return next(then for now, then in pairwise(days) if now.utcoffset() != then.utcoffset())
