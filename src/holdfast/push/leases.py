"""Leases: a push that asked for one is left alone while it shows signs of life."""

from holdfast.errors import Conflict
from holdfast.push.snapshots import details_of
from holdfast.push.state import TableState


def check_lease(state: TableState, entry_id: str, lease: str) -> None:
    """Refuse who does not hold the lease that the push asked for."""
    held = details_of(state, entry_id).lease
    if held and held != lease:
        raise Conflict(
            "the push has a lease and the call does not carry its token",
            entry=entry_id,
            code="LEASE_HELD",
            hint="send the token that start answered",
        )


def lease_expires_at_ms(state: TableState, entry_id: str) -> int | None:
    """None: the push asked for no lease."""
    details = details_of(state, entry_id)
    return (details.renewed_at_ms or 0) + details.lease_ms if details.lease_ms else None
