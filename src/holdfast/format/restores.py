"""Restores: the plan that says which instants will be taken back, and the record of what was."""

from collections.abc import Mapping

from msgspec import Struct, field

from holdfast.format.avro_payloads import InstantText, Payload
from holdfast.format.rollbacks import RollbackMetadata, RolledBackInstant


class RestorePlan(Struct, frozen=True):
    instants: tuple[RolledBackInstant, ...] = field(name="instantsToRollback")
    """In the order in which they are taken back."""
    savepoint: InstantText | None = field(name="savepointToRestoreTimestamp", default=None)
    """Where the table goes; None in plans of releases that did not write it down."""


class RestoreMetadata(Struct, frozen=True):
    start_time: InstantText = field(name="startRestoreTime")
    """The instant of the restore itself."""
    time_taken_ms: int = field(name="timeTakenInMillis")
    commits: tuple[InstantText, ...] = field(name="instantsToRollback")
    rollbacks: Mapping[InstantText, tuple[RollbackMetadata, ...]] = field(name="hoodieRestoreMetadata")
    """Instant → what was removed of it."""
    instants: tuple[RolledBackInstant, ...] = field(name="restoreInstantInfo", default=())
    """What `commits` names, with the actions; empty in files of older releases."""


# Hudi gives the savepoint the default null. A strict parser refuses that for a union that begins with a
# string, so the schema here has no default.
_PLAN = Payload("HoodieRestorePlan", RestorePlan, what="the plan of a restore", constants={"version": 2})
_METADATA = Payload(
    "HoodieRestoreMetadata", RestoreMetadata, what="one of a restore", constants={"version": 1}
)

encode_restore_plan, decode_restore_plan = _PLAN.encode, _PLAN.decode
encode_restore_metadata, decode_restore_metadata = _METADATA.encode, _METADATA.decode
