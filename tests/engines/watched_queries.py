"""A session of its own under honest load, and under what takes an engine from all; as JSON what it did.

python watched_queries.py MASTER
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from functools import partial

from pyspark import SparkContext

from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.session import end_local_jvm, query_session
from holdfast.engines.spark.watched import WatchedSession

MASTER = sys.argv[1]
CORES = int(MASTER.removeprefix("local[").removesuffix("]"))
PATIENCE_S = 5.0
ROWS = 5_000_000 * CORES
LONG = "sum(length(sha2(cast(id as string), 512)))"
ENDLESS = "count_if(regexp_like(repeat('a', 40) || id, '^(a+)+\\\\1b$'))"
FOLDED = "regexp_like(repeat('a', 40), '^(a+)+\\\\1b$')"
BEGUN = time.monotonic()


def say(what):
    sys.stderr.write(f"{time.monotonic() - BEGUN:.1f} {what}\n")


def eventually(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


class Query:
    """A query in a thread, as the engine runs it."""

    def __init__(self, session, expression, *, rows=ROWS):
        self.session, self.jobs, self.found = session, Jobs(), []

        def work():
            try:
                with self.jobs.in_group(session), self.jobs.cancellable(session):
                    frame = session.range(0, rows, numPartitions=min(rows, CORES))
                    self.found.append(frame.selectExpr(f"{expression} AS found").collect()[0].found)
            except Exception as error:  # noqa: BLE001  # told in the thread that waits
                self.found.append(type(error).__name__)

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def is_at_work(self):
        return self.jobs.tasks_at_work(self.session) > 0

    def stop(self, watched):
        """Whether something of it goes on, in a task or in the thread."""
        self.jobs.cancel(self.session)
        self.thread.join(2)
        goes_on = self.thread.is_alive() or self.is_at_work()
        watched.see_off(self.session, self.jobs, self.thread)
        return goes_on


def busy(watched):
    """Two queries that want every core for long, beside looks; the second one is stopped."""
    session, begun = watched.session, time.monotonic()
    query = Query(session, LONG)
    assert eventually(query.is_at_work)
    second = Query(session, LONG)
    was_well, is_stopped = True, False
    while query.thread.is_alive():
        watched.look()
        was_well = was_well and watched.is_well()
        if not is_stopped and time.monotonic() - begun > 2:
            is_stopped = True
            second.stop(watched)
        query.thread.join(0.2)
    seconds = time.monotonic() - begun
    say(f"busy for {seconds:.1f} s: {query.found} {second.found}")
    return {
        "longer_than_patience": seconds > PATIENCE_S,
        "stopped_is_gone": eventually(lambda: watched._look is None and bool(second.found)),
        "answered": isinstance(query.found[0], int),
        "was_well": was_well,
        "same": watched._session is session,
    }


def stuck(watched):
    """One task that goes on though its job was cancelled, and leaves the other cores alone."""
    query = Query(watched.session, ENDLESS, rows=1)
    assert eventually(query.is_at_work)
    return {"goes_on": query.stop(watched), **replaced(watched, query.session)}


def planned(watched):
    """An expression that the planner works out, in no task, and never ends to."""
    query = Query(watched.session, FOLDED, rows=1)
    query.thread.join(2)
    return {"goes_on": query.stop(watched), **replaced(watched, query.session)}


def silent(watched):
    """A JVM that answers nothing."""
    session, process = watched.session, SparkContext._gateway.proc
    process.send_signal(signal.SIGSTOP)
    watched.look()
    return {"goes_on": process.poll() is None, **replaced(watched, session)}


def replaced(watched, session):
    was_replaced = eventually(lambda: watched._session not in (session, None))
    say(f"replaced: {was_replaced}")
    return {"replaced": was_replaced, "answers": watched.session.range(3).count(), "well": watched.is_well()}


def main():
    watched = WatchedSession(partial(query_session, MASTER), end=end_local_jvm, patience_s=PATIENCE_S)
    watched.session.range(1).count()
    told = {}
    for case in (busy, stuck, planned, silent):
        say(case.__name__)
        told[case.__name__] = case(watched)
        say(told)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


code = 1
try:
    main()
    code = 0
except BaseException:
    traceback.print_exc()
    raise
finally:
    # At once, with no word to threads and a JVM of which some never end.
    end_local_jvm()
    os._exit(code)
