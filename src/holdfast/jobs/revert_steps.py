"""Which pushes of a table to take back, given which of them came from commits that are gone: pure.

Of the lineage only what is served matters: what a later push replaced is left
alone, and what cannot be taken back is left with the reason.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model.pushes import Fate

NOT_RETAINED = "what it replaced is no longer retained: push again"
GONE_TOO = "what it replaced came from a commit that is gone, too: push again"
_REPLACED = "a later push has replaced it"
_REVERTED = "it was reverted before"
_FORGOTTEN = "its lineage entry is gone, and a later push is served"

IsGone = Callable[[str, Mapping[str, str]], bool]
"""Whether an entry, by its id and its source, delivers rows of a commit that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """One call to the service."""

    entries: tuple[str, ...]
    """What it reverts, newest first."""
    to_epoch: int | None = None
    """The snapshot to go back to, over several entries at once."""
    is_open: bool = False
    """The push is not published yet, and is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What is to be done about one table."""

    reverts: tuple[Revert, ...] = ()
    left: Mapping[str, str]
    """Entry → why nothing is done about it."""
    shown: Mapping[str, Any] | None = None
    """The snapshot that queries see afterwards, where it is known."""

    @property
    def still_served(self) -> tuple[str, ...]:
        """The entries that are left although queries see their rows."""
        return tuple(one for one, why in self.left.items() if why in (NOT_RETAINED, GONE_TOO))


def plan_steps(
    lineage: Mapping[str, Mapping[str, Any]],
    snapshots: Collection[Mapping[str, Any]],
    is_gone: IsGone,
    recorded: Iterable[str] = (),
) -> Steps:
    """`lineage` and `snapshots` are what the service answers: oldest first, and newest first.

    `recorded` are entries to say something about although the lineage may not have them any more.
    """
    gone = [entry_id for entry_id, one in lineage.items() if is_gone(entry_id, one.get("source", {}))]
    left = {entry_id: _REVERTED for entry_id in gone if lineage[entry_id]["state"] == "REVERTED"}
    is_served = any(one["isCurrent"] and is_gone("", one["source"]) for one in snapshots)
    left |= {one: NOT_RETAINED if is_served else _FORGOTTEN for one in recorded if one not in lineage}
    opened = [entry_id for entry_id in gone if lineage[entry_id]["state"] == "IN_PROGRESS"]
    completed = [entry_id for entry_id, one in lineage.items() if one["state"] == "COMPLETED"]
    chosen: list[str] = []
    for entry_id in reversed(completed):
        if entry_id in gone:
            later = completed[completed.index(entry_id) + 1 :]
            if _is_replaced(lineage, entry_id, [one for one in later if one not in chosen]):
                left[entry_id] = _REPLACED
            else:
                chosen.append(entry_id)
    reverts = [Revert(entries=(entry_id,), is_open=True) for entry_id in opened]
    if chosen != completed[: -len(chosen) - 1 : -1]:
        # Parts of a table, each pushed by itself.
        return Steps(reverts=(*reverts, *(Revert(entries=(one,)) for one in chosen)), left=left)
    target = next((one for one in snapshots if chosen and list(one["steps"]) == chosen), None)
    if target is None or is_gone("", target["source"]):
        left |= dict.fromkeys(chosen, NOT_RETAINED if target is None else GONE_TOO)
        return Steps(reverts=tuple(reverts), left=left)
    to_epoch = target["epoch"] if len(chosen) > 1 else None
    reverts.append(Revert(entries=tuple(chosen), to_epoch=to_epoch))
    return Steps(reverts=tuple(reverts), left=left, shown=target)


def fate_of(entry_id: str, lineage: Mapping[str, Mapping[str, Any]], *, is_seen: bool) -> Fate:
    """What became of a push. `is_seen`: queries see its commit, although its entry may be gone."""
    entry = lineage.get(entry_id)
    if entry is None:
        return Fate.SERVED if is_seen else Fate.REPLACED
    if entry["state"] == "REVERTED":
        return Fate.REVERTED
    if entry["state"] == "IN_PROGRESS":
        return Fate.OPEN
    completed = [one for one, found in lineage.items() if found["state"] == "COMPLETED"]
    is_replaced = _is_replaced(lineage, entry_id, completed[completed.index(entry_id) + 1 :])
    return Fate.REPLACED if is_replaced else Fate.SERVED


def _is_replaced(lineage: Mapping[str, Mapping[str, Any]], entry_id: str, later: Iterable[str]) -> bool:
    """Whether later pushes took the place of all that it brought."""
    brought = set(lineage[entry_id]["segmentsTo"])
    return bool(brought) and brought <= {name for one in later for name in lineage[one]["segmentsFrom"]}
