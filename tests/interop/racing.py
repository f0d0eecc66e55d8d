"""Writes of one engine while the other writes, too; as a program, those of ours: `PATH OPTION...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from interop.engines import Engine, Holdfast
from interop.shapes import TRIPS, trips

COUNT = 6


def raced(engine: Engine, path: str, options: Mapping[str, str]) -> dict[str, float]:
    """What was acknowledged of so many rows: every other one into a file group that both change.

    There one may lose, and is told so; the others meet nobody.
    """
    written = {}
    for n in range(1, COUNT + 1):
        key = f"{engine.name[:2]}{n}"
        is_shared = n % 2 == 1
        try:
            engine.write(
                path, TRIPS, "upsert", trips((key, "paris" if is_shared else engine.name, n), ts=n), options
            )
        except Exception as error:  # py4j's or ours
            if not is_shared or "onflict" not in f"{type(error)} {error}":
                raise
        else:
            written[key] = float(n)
    return written


if __name__ == "__main__":
    path, *given = sys.argv[1:]
    acknowledged = raced(Holdfast(), path, dict(each.split("=", 1) for each in given))
    sys.stdout.write(json.dumps(acknowledged))
