"""The rules of the replacement protocol that can be switched off."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where Holdfast is stricter or kinder than Pinot. A field that is off means Pinot's own behaviour."""

    attempts_have_own_names: bool = True
    """A new push gets no name that a reverted or completed entry hides: it would stay hidden."""
    one_full_push: bool = True
    """A table with consistent push has one open push of the whole table at a time, and it is exclusive."""
    narrowing_removes: bool = True
    """A segment that was uploaded and then left out at the end goes in the same write, before it is seen."""
    all_replicas: bool = True
    """A switch needs every replica of every segment online, not one."""
    remembers_ended: bool = True
    """An entry that retention removed still answers a repeated end or revert."""
    repeats_revert: bool = True
    """Reverting what is reverted succeeds and changes nothing."""
    keeps_reverted: bool = True
    """What a revert takes back stays for the retention window, so that it can be redone."""
    times_rise: bool = True
    """An entry's time is later than every other's, whatever the clocks of the controllers say."""
    guards_uploads: bool = True
    """No upload into a reverted entry, beside an exclusive push, or over what queries or a revert need."""
    locks_deletes: bool = True
    """Pinot's own switch: what a live entry needs cannot be deleted."""
    keeps_newest_entry: bool = True
    """The newest completed entry stays for the retention window even when nothing is left to delete."""
    counts_snapshots: bool = True
    """Retention also deletes by number of snapshots, and a start leaves room for the new one."""
    keeps_by_either: bool = False
    """A snapshot goes only when it is too old *and* too many are newer, rather than for one of the two."""
    reverts_stale: bool = True
    """Retention reverts a push that died when it removes its segments, so that its end fails clearly."""


PINOT = Rules(**{each.name: each.name == "locks_deletes" for each in fields(Rules)})
"""What Apache Pinot does, hazards included."""
