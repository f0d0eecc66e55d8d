"""A process that holds a table's lock, says so, and on each line it is sent says whether it still does."""

import sys

from holdfast.clock import SystemClock
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.locks import LockSettings
from holdfast.errors import Fenced
from holdfast.host import SystemHost
from holdfast.storage.open import location_of, open_store
from holdfast.table.opened import open_existing


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    path, *options = sys.argv[1:]
    location = location_of(path)
    table = open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())
    settings = LockSettings.from_options(dict(option.split("=", 1) for option in options))
    with open_lock(table, settings).hold() as hold:
        say("holding")
        for _ in sys.stdin:
            try:
                hold.refuse_if_lost()
                say("held")
            except Fenced:
                say("fenced")
