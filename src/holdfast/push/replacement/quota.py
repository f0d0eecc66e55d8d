"""Storage quota: whether a push fits beside what is kept, checked before the first upload.

A snapshot that replaces another needs room for both until retention has run,
so a table may hold twice its quota: once for what queries see, once for the
rest. Both limits count every replica.
"""

from collections.abc import Mapping

from holdfast.config.push import PushTable
from holdfast.errors import Refused
from holdfast.model.segment import Segment
from holdfast.push.calls import Preflight
from holdfast.push.replacement.snapshots import rollback_snapshots
from holdfast.push.state.table_state import TableState

_FACTOR = 2


def byte_limit(config: PushTable) -> int | None:
    """How much the table may hold with everything that is kept; None: no limit."""
    if config.snapshot_quota_bytes is not None:
        return config.snapshot_quota_bytes * config.replication
    if config.storage_quota_bytes is not None:
        return _FACTOR * config.storage_quota_bytes * config.replication
    return None


def preflight(
    state: TableState,
    known: Mapping[str, Segment],
    *,
    incoming_bytes: int,
    freed: tuple[str, ...] = (),
) -> Preflight:
    """Whether the incoming bytes fit. `freed` are segments that the push removes when it starts."""
    replicas = state.config.replication
    used = replicas * _size(known, state.segments)
    gone = replicas * _size(known, frozenset(freed) & state.segments)
    incoming = replicas * incoming_bytes
    allowed = byte_limit(state.config)
    one = state.config.storage_quota_bytes
    fits_all = allowed is None or used - gone + incoming <= allowed
    fits_one = one is None or incoming <= one * replicas
    return Preflight(
        fits=fits_all and fits_one,
        allowed_bytes=allowed,
        used_bytes=used,
        incoming_bytes=incoming,
        freed_bytes=gone,
        advice=() if fits_all and fits_one else _advice(state, known, replicas),
    )


def check_preflight(report: Preflight) -> None:
    if report.fits:
        return
    raise Refused(
        "the push does not fit into the table's storage quota",
        allowed_bytes=report.allowed_bytes,
        used_bytes=report.used_bytes,
        freed_bytes=report.freed_bytes,
        incoming_bytes=report.incoming_bytes,
        code="QUOTA_EXCEEDED",
        hint="; ".join(report.advice) or "raise quota.storage",
    )


def check_upload_quota(state: TableState, known: Mapping[str, Segment], added: Mapping[str, Segment]) -> None:
    """Refuse segments that do not fit. One that replaces a larger one always fits."""
    grows = [
        segment
        for name, segment in added.items()
        if name not in known or name not in state.segments or segment.size_bytes > known[name].size_bytes
    ]
    allowed = byte_limit(state.config)
    if not grows or allowed is None:
        return
    replicas = state.config.replication
    used = replicas * _size(known, state.segments - added.keys())
    incoming = replicas * sum(segment.size_bytes for segment in added.values())
    if used + incoming > allowed:
        raise Refused(
            "the upload does not fit into the table's storage quota",
            allowed_bytes=allowed,
            used_bytes=used,
            incoming_bytes=incoming,
            code="QUOTA_EXCEEDED",
            hint="; ".join(_advice(state, known, replicas)) or "raise quota.storage",
        )


def _advice(state: TableState, known: Mapping[str, Segment], replicas: int) -> tuple[str, ...]:
    """What could be freed, or which limit to raise."""
    snapshots = rollback_snapshots(state)
    advice = []
    if len(snapshots) > 1:
        needed = frozenset[str]().union(*(each.segments for each in snapshots[:-1]))
        oldest = snapshots[-1]
        freed = replicas * _size(known, oldest.segments - needed)
        advice.append(f"the oldest snapshot (epoch {oldest.epoch}) holds {freed} bytes of its own")
    hidden = replicas * _size(known, state.segments - state.visible)
    if hidden:
        advice.append(f"{hidden} bytes are hidden from queries; retention or a revert may free them")
    advice.append("a push needs room for the old and the new snapshot: raise quota.storage")
    return tuple(advice)


def _size(known: Mapping[str, Segment], names: frozenset[str]) -> int:
    return sum(known[name].size_bytes for name in names if name in known)
