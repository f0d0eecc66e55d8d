"""Another process on the same file: counts, or announces itself, until it is done or killed."""

import sys
import time

from holdfast.errors import LineageChanged
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
    elif mode == "fifty":
        for _ in range(50):
            count(store, name)
    else:
        store.claim("leader", name)
        store.announce(f"/brokers/{name}", b"17")
        say("announced")
        time.sleep(600)
