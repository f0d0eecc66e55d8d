"""Takes the pictures of the console that README and docs show: `make pictures`."""

import tempfile
from pathlib import Path

from harness.chromium import Watched, chromium
from harness.console_world import make_trips, push_orders, serving_console
from harness.guides import ROOT

FOLDER = ROOT / "docs/pictures"
SIZE = {"width": 1040, "height": 620}
PICTURES = {
    "console-overview": "/",
    "console-timeline": "/console/table/trips/timeline",
    "console-plan": "/console/table/trips/takeback?act=restore&to=latest-savepoint",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        place = Path(folder) / "lake"
        place.mkdir()
        make_trips(place)
        tables = {"trips": str(place / "trips"), "orders": str(place / "orders")}
        with serving_console(place, tables) as running:
            push_orders(place, running)
            for name, path in PICTURES.items():
                with Watched(browser, running.controller_url, viewport=SIZE) as watched:
                    watched.go(path)
                    watched.check()
                    taken = watched.shoot(FOLDER, name, whole=False)
                    print(f"{taken.relative_to(ROOT)}: {taken.stat().st_size // 1024} KB")  # noqa: T201


if __name__ == "__main__":
    main()
