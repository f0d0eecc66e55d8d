"""Change feeds on Spark: which versions of the records that a feed is about the table is to hold.

The versions that the table has of these keys are taken for changes, too, and
put in order with those of the feed. So a change that comes late splits the
version that it falls into, and a feed that comes twice changes nothing:

    table:  [1 ──────────── 9)[9 ─►        feed: a change at 4
    then:   [1 ── 4)[4 ──── 9)[9 ─►

A delete ends the version before it. Where there is none, because older changes
are still to come, it is kept as a version that ends where it begins.
"""

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.spark.keys import quote
from holdfast.engines.spark.reader import read_frame
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.engines.spark.writer import SparkRows
from holdfast.errors import Conflict
from holdfast.model.instant import InstantTime
from holdfast.model.reports import Commit
from holdfast.read.snapshot import take_settled_snapshot
from holdfast.table.opened import OpenTable
from holdfast.table.settled import await_settled_commit
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.change_feeds import VALID_FROM, VALID_TO, ChangeFeed
from holdfast.writes.operations import write
from holdfast.writes.origin import Origin
from holdfast.writes.task import IS_DELETED

_IS_DELETE, _IN_FEED, _END, _NEXT = "_is_delete", "_in_feed", "_end", "_next"
_HAS_ROW, _FOLLOWS_VERSION = "_has_row", "_follows_version"
_ATTEMPTS = 5


def apply_newest(
    table: OpenTable, rows: DataFrame, feed: ChangeFeed, deletes: Column | str | None, settings: WriteSettings
) -> Commit:
    """Type 1: the newest row of each key."""
    feed.check_columns(arrow_schema_of(rows.schema))
    feed.check_newest_only(table.settings)
    marked = rows if deletes is None else rows.withColumn(IS_DELETED, _condition(deletes))
    return write(table, Operation.UPSERT, SparkRows(marked), settings)


def apply_history(
    table: OpenTable, rows: DataFrame, feed: ChangeFeed, deletes: Column | str | None, settings: WriteSettings
) -> Commit:
    """Type 2: every version. Made anew if another write was committed between the read and the write."""
    feed.check_columns(arrow_schema_of(rows.schema))
    feed.check_history(table.settings)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _apply_history(table, rows, feed, deletes, settings)
        except Conflict as conflict:
            # Of all conflicts this one alone says what was read.
            if "read" not in conflict.facts:
                raise
    return _apply_history(table, rows, feed, deletes, settings)


def _apply_history(
    table: OpenTable, rows: DataFrame, feed: ChangeFeed, deletes: Column | str | None, settings: WriteSettings
) -> Commit:
    newest = await_settled_commit(table).commit
    read = None if newest is None else newest.time
    versions = new_versions(rows, _read_stored(rows.sparkSession, table, read), feed, deletes)
    origin = Origin(check=lambda: _refuse_if_moved_on(table, read))
    return write(table, Operation.UPSERT, SparkRows(versions), settings, origin=origin)


def _read_stored(session: SparkSession, table: OpenTable, read: InstantTime | None) -> DataFrame | None:
    if read is None:
        return None
    found = take_settled_snapshot(table, read)
    return None if found.schema is None else read_frame(session, table, found, found.schema)


def _refuse_if_moved_on(table: OpenTable, read: InstantTime | None) -> None:
    newest = load_timeline(table.store).last_commit
    now = None if newest is None else newest.time
    if now != read:
        raise Conflict(
            "the table has changed since the versions of its records were read",
            read=read or "nothing",
            newest=now or "nothing",
            hint="nothing was written; apply the changes again",
        )


def new_versions(
    rows: DataFrame, stored: DataFrame | None, feed: ChangeFeed, deletes: Column | str | None
) -> DataFrame:
    """The versions that the table does not hold, or not with this end."""
    keys = [f.col(quote(name)) for name in feed.keys]
    changes = _changes_of_feed(rows, feed, deletes)
    if stored is not None:
        mentioned = rows.select(*keys).distinct()
        known = stored.join(mentioned, list(feed.keys), "left_semi")
        changes = changes.unionByName(_changes_of_table(known, feed), allowMissingColumns=True)
    # Of two changes at one moment that of the feed counts, and of two of the feed the delete.
    at_once = Window.partitionBy(*keys, VALID_FROM)
    first = at_once.orderBy(f.desc(_IN_FEED), f.desc(_IS_DELETE))
    changes = (
        changes.withColumn(_NEXT, f.row_number().over(first))
        .withColumn(_HAS_ROW, f.max(_HAS_ROW).over(at_once))
        .where(f.col(_NEXT) == 1)
    )
    in_order = Window.partitionBy(*keys).orderBy(VALID_FROM)
    ordered = changes.withColumn(_NEXT, f.lead(VALID_FROM).over(in_order)).withColumn(
        _FOLLOWS_VERSION, f.coalesce(~f.lag(_IS_DELETE).over(in_order), f.lit(False))
    )
    end = f.when(f.col(_IS_DELETE), f.col(VALID_FROM)).otherwise(f.col(_NEXT))
    is_new_version = ~f.col(_IS_DELETE) & (f.col(_IN_FEED) | ~f.col(_END).eqNullSafe(end))
    # A delete has a row where no version ends at it, and where it takes the place of one.
    is_new_delete = f.col(_IS_DELETE) & f.when(f.col(_HAS_ROW), f.col(_IN_FEED)).otherwise(
        ~f.col(_FOLLOWS_VERSION)
    )
    versions = ordered.where(is_new_version | is_new_delete).withColumn(VALID_TO, end)
    inner = {_IS_DELETE, _IN_FEED, _END, _NEXT, _HAS_ROW, _FOLLOWS_VERSION}
    return versions.select(*(f.col(quote(name)) for name in versions.columns if name not in inner))


def _changes_of_feed(rows: DataFrame, feed: ChangeFeed, deletes: Column | str | None) -> DataFrame:
    moment = f.col(quote(feed.sequence_by))
    kind = rows.schema[feed.sequence_by].dataType
    return (
        rows.withColumn(_IS_DELETE, f.lit(False) if deletes is None else _condition(deletes))
        .withColumn(VALID_FROM, moment)
        .withColumn(VALID_TO, f.lit(None).cast(kind))
        .withColumn(_END, f.lit(None).cast(kind))
        .withColumn(_IN_FEED, f.lit(True))
        .withColumn(_HAS_ROW, f.lit(False))
    )


def _changes_of_table(stored: DataFrame, feed: ChangeFeed) -> DataFrame:
    """A change for each version, and a delete where one ends and none begins."""
    keys = [f.col(quote(name)) for name in feed.keys]
    in_order = Window.partitionBy(*keys).orderBy(VALID_FROM)
    starts, ends = f.col(VALID_FROM), f.col(VALID_TO)
    known = (
        stored.withColumn(_NEXT, f.lead(VALID_FROM).over(in_order))
        .withColumn(_IS_DELETE, f.coalesce(starts == ends, f.lit(False)))
        .withColumn(_END, ends)
        .withColumn(_IN_FEED, f.lit(False))
        .withColumn(_HAS_ROW, f.lit(True))
    )
    is_deleted_after = ends.isNotNull() & ~f.col(_IS_DELETE) & ~ends.eqNullSafe(f.col(_NEXT))
    gone = (
        known.where(is_deleted_after)
        .withColumn(VALID_FROM, ends)
        .withColumn(_IS_DELETE, f.lit(True))
        .withColumn(_HAS_ROW, f.lit(False))
    )
    return known.unionByName(gone).drop(_NEXT)


def _condition(deletes: Column | str) -> Column:
    condition = f.expr(deletes) if isinstance(deletes, str) else deletes
    return f.coalesce(condition.cast("boolean"), f.lit(False))
