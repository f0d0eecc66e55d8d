"""Another process on the same file: counts, or announces itself, until it is done or killed."""

import os
import resource
import signal
import sys
import time

from holdfast.errors import LineageChanged, OutcomeUnknown, StorageUnavailable
from holdfast.push.metastore.port import Create, Replace
from holdfast.push.metastore.sqlite import SqliteMetastore


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def count(store: SqliteMetastore, name: str) -> int:
    while True:
        counter, twin = store.read_all([f"/{name}/counter", f"/{name}/twin"])
        after = int(counter.data) + 1
        text = b"%d" % after
        try:
            store.write(
                [
                    Replace(f"/{name}/counter", text, counter.version),
                    Replace(f"/{name}/twin", text, twin.version),
                ]
            )
        except LineageChanged:
            continue
        return after


if __name__ == "__main__":
    path, name, mode = sys.argv[1:]
    store = SqliteMetastore(path, "cluster")
    if mode == "once":
        store.write([Create(f"/{name}", b"1")])
    elif mode == "counting":
        store.write([Create(f"/{name}/counter", b"0"), Create(f"/{name}/twin", b"0")])
        while True:
            say(count(store, name))
    elif mode == "bulk":
        paths = [f"/{name}/{number:03}" for number in range(200)]
        store.write([Create(path, b"0") for path in paths])
        while True:
            records = store.read_all(paths)
            after = int(records[0].data) + 1
            text = b"%d" % after
            store.write(
                [Replace(path, text, record.version) for path, record in zip(paths, records, strict=True)]
            )
            say(after)
    elif mode == "full":
        store.write([Create(f"/{name}", b"old")])
        version = store.read(f"/{name}").version
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        used = max(os.path.getsize(path + ending) for ending in ("", "-wal", "-shm"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (used + 100_000, resource.RLIM_INFINITY))
        try:
            store.write([Replace(f"/{name}", b"x" * 5_000_000, version), Create(f"/{name}-2", b"new")])
        except (StorageUnavailable, OutcomeUnknown) as error:
            say(type(error).__name__)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        say(store.read(f"/{name}").data.decode())
        store.write([Replace(f"/{name}", b"after", version)])
    elif mode == "fifty":
        for _ in range(50):
            count(store, name)
    else:
        store.claim("leader", name)
        store.announce(f"/brokers/{name}", b"17")
        say("announced")
        time.sleep(600)
