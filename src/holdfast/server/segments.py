"""Routes of segments: listing, metadata, download, delete. Uploads have a module of their own."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any, BinaryIO

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.format.segments import Creation, SegmentDescription, segment_record
from holdfast.format.znode import decode_record
from holdfast.model.segment import Segment
from holdfast.push.segments.column_ranges import column_descriptions
from holdfast.push.state.records import external_view_path
from holdfast.push.uploads.archives import archive_pieces
from holdfast.server.auth import Access
from holdfast.server.endpoints import Answer, BodyKind, Call, Endpoint, Reply
from holdfast.server.parameters import (
    NeededType,
    OfTable,
    OfTypedTable,
    OfTypedTablePrecisely,
    Parameter,
    Precise,
    in_path,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, STATUS, status
from holdfast.server.tables import RetentionMs

_CHUNK = 1024 * 1024
_START = Parameter("Inclusive, in milliseconds since the epoch.", "startTimestamp")
_END = Parameter("Exclusive, in milliseconds since the epoch.", "endTimestamp")
_OVERLAPPING = Parameter("Leave out what only overlaps the range.")
SegmentName = Annotated[str, in_path("A segment's name.")]
OnlySeen = Annotated[bool, Parameter("Only what queries see.")]


class SelectParameters(OfTypedTable, frozen=True, kw_only=True):
    start_ms: Annotated[int | None, _START] = None
    end_ms: Annotated[int | None, _END] = None
    exclude_overlapping: Annotated[bool, _OVERLAPPING] = False

    def range(self) -> tuple[int | None, int | None]:
        """The range of times, checked."""
        if self.start_ms is not None and self.end_ms is not None and self.start_ms >= self.end_ms:
            raise InvalidRequest(
                "the time range ends before it starts", start=self.start_ms, end=self.end_ms,
                code="PARAMETER_INVALID",
            )  # fmt: skip
        return self.start_ms, self.end_ms


class ListParameters(SelectParameters, frozen=True, kw_only=True):
    exclude_replaced_segments: OnlySeen = False


class ChooseParameters(ListParameters, frozen=True, kw_only=True):
    type: NeededType
    exclude_overlapping: Annotated[bool, _OVERLAPPING] = True
    retention_ms: RetentionMs = None
    precise: Precise = None


class SegmentParameters(OfTypedTable, frozen=True, kw_only=True):
    segment: SegmentName


class DeleteSegmentParameters(OfTable, frozen=True, kw_only=True):
    segment: SegmentName
    retention_ms: RetentionMs = None
    precise: Precise = None


class DeleteListedParameters(OfTypedTablePrecisely, frozen=True, kw_only=True):
    retention_ms: RetentionMs = None


class DeleteSegmentsParameters(DeleteListedParameters, frozen=True, kw_only=True):
    type: NeededType
    segments: Annotated[tuple[str, ...], Parameter("A segment's name. Repeats.")] = ()


def list_segments(service: Service, call: Call[ListParameters]) -> Reply:
    names = _select(service, call.parameters, only_seen=call.parameters.exclude_replaced_segments)
    return Reply(document=[{"OFFLINE": list(names)}])


def select_segments(service: Service, call: Call[SelectParameters]) -> Reply:
    return Reply(document=[{"OFFLINE": list(_select(service, call.parameters, only_seen=True))}])


def segment_metadata(service: Service, call: Call[SegmentParameters]) -> Reply:
    return Reply(document=_flat(_segment(service, call)))


def all_metadata(service: Service, call: Call[OfTypedTable]) -> Reply:
    return Reply(document={name: _flat(one) for name, one in _segments(service, call).items()})


def all_crc(service: Service, call: Call[OfTypedTable]) -> Reply:
    return Reply(document={name: str(one.crc) for name, one in _segments(service, call).items()})


def servers(service: Service, call: Call[OfTypedTable]) -> Reply:
    table = call.parameters.typed
    service.catalog.table(table)
    view = service.catalog.metastore.read(external_view_path(table))
    found: dict[str, list[str]] = {}
    for name, holders in ({} if view is None else decode_record(view.data).maps).items():
        for server in holders:
            found.setdefault(server, []).append(name)
    return Reply(document=[{"tableName": table, "serverToSegmentsMap": found}])


def download(service: Service, call: Call[SegmentParameters]) -> Reply:
    """The archive of a segment, made anew from its file and its record."""
    segment = _segment(service, call)
    if "://" in segment.uri:
        raise InvalidRequest(
            "the bytes of the segment are elsewhere", segment=segment.name, uri=segment.uri,
            code="SEGMENT_NOT_FOUND",
        )  # fmt: skip
    try:
        source = service.deep_store.open(segment.uri)
    except FileNotFoundError as error:
        raise _not_found(segment.name) from error
    # Made while it is sent: what waited on disk for its client would take room that no budget counts.
    pieces = (
        _closing(source, _chunks(source))
        if segment.is_opaque
        else _pack(service, call.parameters.typed, segment, source)
    )
    return Reply(chunks=pieces, media_type="application/octet-stream")


def delete_segment(service: Service, call: Call[DeleteSegmentParameters]) -> Reply:
    return _delete(service, call, (call.parameters.segment,), "Segment deleted")


def delete_segments(service: Service, call: Call[DeleteSegmentsParameters]) -> Reply:
    named = tuple(name for name in call.parameters.segments if name.strip())
    names = named or service.controller.views.select(call.parameters.typed)
    return _delete(service, call, names, f"{len(names)} segments deleted")


def delete_chosen(service: Service, call: Call[ChooseParameters]) -> Reply:
    if None in call.parameters.range():
        raise InvalidRequest(
            "a time range is needed", code="PARAMETER_MISSING", hint="give startTimestamp and endTimestamp"
        )
    names = _select(service, call.parameters, only_seen=call.parameters.exclude_replaced_segments)
    return _delete(service, call, names, f"{len(names)} segments deleted")


def delete_listed(service: Service, call: Call[DeleteListedParameters]) -> Reply:
    names = tuple(call.read(list[str]))
    return _delete(service, call, names, f"{len(names)} segments deleted")


def _select(service: Service, parameters: SelectParameters, *, only_seen: bool) -> tuple[str, ...]:
    start_ms, end_ms = parameters.range()
    return service.controller.views.select(
        parameters.typed,
        start_ms=start_ms,
        end_ms=end_ms,
        exclude_replaced=only_seen,
        exclude_overlapping=parameters.exclude_overlapping,
    )


def _delete(
    service: Service,
    call: Call[ChooseParameters | DeleteSegmentParameters | DeleteListedParameters],
    names: tuple[str, ...],
    text: str,
) -> Reply:
    table = call.parameters.typed
    if names:
        service.controller.delete_segments(
            table, names, retention_ms=call.parameters.retention_ms, by=service.caller(call, table)
        )
    return Reply(document=status(text))


def _segment(service: Service, call: Call[SegmentParameters]) -> Segment:
    table, name = call.parameters.typed, call.parameters.segment
    found = service.catalog.segment(table, name)
    if found is None:
        service.catalog.table(table)
        raise _not_found(name)
    return found


def _segments(service: Service, call: Call[OfTypedTable]) -> Mapping[str, Segment]:
    return service.controller.views.segments(call.parameters.typed)


def _flat(segment: Segment) -> dict[str, Any]:
    """The record of a segment as one map of texts, as Pinot shows it."""
    record = segment_record(segment)
    return {**record.simple, **{key: dict(value) for key, value in record.maps.items()}}


def _pack(service: Service, table: str, segment: Segment, source: BinaryIO) -> Iterator[bytes]:
    schema = service.catalog.schema_of(table)
    description = SegmentDescription(
        name=segment.name,
        table=table,
        docs=segment.docs,
        time_column=service.catalog.table(table).time_column,
        start_ms=segment.start_ms,
        end_ms=segment.end_ms,
        columns=column_descriptions(schema, segment.columns),
    )
    creation = Creation(segment.crc, segment.created_ms)
    return _closing(source, archive_pieces(description, creation, source, size_bytes=segment.size_bytes))


def _closing(source: BinaryIO, pieces: Iterator[bytes]) -> Iterator[bytes]:
    with closing(source):
        yield from pieces


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk


def _not_found(name: str) -> InvalidRequest:
    return InvalidRequest("there is no such segment", segment=name, code="SEGMENT_NOT_FOUND")


_MISSING = {404: "The table or the segment is not known."}
_LOCKED = {
    **_MISSING,
    409: "A lineage entry needs a segment (precise statuses).",
    500: "A lineage entry needs a segment, as Pinot answers. Or a bug.",
}
_DELETED = Answer(about="Deleted.", schema=STATUS)
_BY_TYPE = Answer(about="Names by type.", schema={"type": "array", "items": OBJECT})

ENDPOINTS = (
    Endpoint(
        method="GET", path="/segments/{table}", name="GetSegments", access=Access(Role.READ),
        handle=list_segments, about="The segments of a table.",
        parameters=ListParameters, answer=_BY_TYPE, refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/select", name="SelectSegments", access=Access(Role.READ),
        handle=select_segments, about="The segments that queries see in a time range.",
        parameters=SelectParameters, answer=_BY_TYPE, refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/crc", name="GetCrc", access=Access(Role.READ), handle=all_crc,
        about="The checksum of every segment.", parameters=OfTypedTable,
        answer=Answer(about="By segment.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/servers", name="GetServers", access=Access(Role.READ),
        handle=servers, about="Which server holds which segments.", parameters=OfTypedTable,
        answer=Answer(about="By server.", schema={"type": "array", "items": OBJECT}), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/zkmetadata", name="GetAllMetadata", access=Access(Role.READ),
        handle=all_metadata, about="The record of every segment.", parameters=OfTypedTable,
        answer=Answer(about="By segment.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/{segment}/metadata", name="GetMetadata",
        access=Access(Role.READ), handle=segment_metadata, about="The record of a segment.",
        parameters=SegmentParameters, answer=Answer(about="Its fields.", schema=OBJECT),
        refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/{segment}", name="DownloadSegment", access=Access(Role.READ),
        handle=download, is_download=True, about="A segment as a tar.gz, as Pinot packs it.",
        parameters=SegmentParameters,
        answer=Answer(about="The archive.", schema={"type": "string", "format": "binary"},
                      media_type="application/octet-stream"),
        refusals=_MISSING,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}/choose", name="DeleteChosenSegments",
        access=Access(Role.OPERATE), handle=delete_chosen, about="Delete the segments of a time range.",
        parameters=ChooseParameters,
        answer=_DELETED, refusals=_LOCKED,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}/{segment}", name="DeleteSegment",
        access=Access(Role.OPERATE), handle=delete_segment, about="Delete a segment.",
        parameters=DeleteSegmentParameters, answer=_DELETED,
        refusals=_LOCKED,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}", name="DeleteSegments", access=Access(Role.OPERATE),
        handle=delete_segments, about="Delete segments; all of them, if none is named.",
        parameters=DeleteSegmentsParameters,
        answer=_DELETED, refusals=_LOCKED,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/delete", name="DeleteListedSegments",
        access=Access(Role.OPERATE), handle=delete_listed, about="Delete the segments in the body.",
        parameters=DeleteListedParameters, body=BodyKind.JSON, body_type=list[str],
        has_list=True, body_about="Names.", answer=_DELETED, refusals=_LOCKED,
    ),
)  # fmt: skip
