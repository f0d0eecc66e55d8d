"""Stable names: what a segment is called when pushes overwrite by name instead of replacing by lineage."""

import re
from collections.abc import Iterable

_RUN = re.compile(r"_[0-9]{13}(?=_|$)")
"""The time in milliseconds by which a push tells its segments from those of other pushes."""


def stable_names(names: Iterable[str]) -> dict[str, str]:
    """The new name of every segment that carries the time of its push.

    Where two segments would get the same name they are numbered, in their order.
    """
    known = sorted(names)
    taken = {name for name in known if _stripped(name) == name}
    renamed: dict[str, str] = {}
    for name in known:
        stable = _stripped(name)
        if stable == name:
            continue
        number = 0
        while (candidate := f"{stable}_{number}" if number else stable) in taken:
            number += 1
        taken.add(candidate)
        renamed[name] = candidate
    return renamed


def _stripped(name: str) -> str:
    return _RUN.sub("", name, count=1) or name
