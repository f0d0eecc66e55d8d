"""Routes of uploads: a file, an address, or metadata only; one segment or many."""

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.calls import (
    Uploaded,
    UploadOptions,
)
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import (
    DATABASE_HEADER,
    NO_TABLE,
    PRECISE_HEADER,
    TABLE,
    TYPE,
    Answer,
    BodyKind,
    Call,
    Endpoint,
    Parameter,
    Reply,
    Upload,
    flag,
    header,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, STATUS, status
from holdfast.server.table_names import offline_name, parse_type, qualify


class Modifier(msgspec.Struct, rename="camel", frozen=True):
    """Changes to the map that a segment carries."""

    map_modify_mode: str = "UPDATE"
    map: dict[str, str] = {}


def upload(service: Service, call: Call) -> Reply:
    table = _table(call)
    match (call.text("UPLOAD_TYPE") or "SEGMENT").strip().upper():
        case "SEGMENT":
            sent = _form_file(call)
            uploaded = service.controller.uploads.upload_file(
                table,
                sent.path,
                name=_segment_name(sent),
                options=_options(call),
                by=service.caller(call, table),
                take=call.take,
            )
        case "URI":
            uploaded = _fetch(service, call, table)
        case "METADATA":
            uploaded = _register_metadata(service, call, table)
        case kind:
            raise InvalidRequest(
                "not an upload type", header="UPLOAD_TYPE", value=kind[:40], code="PARAMETER_INVALID"
            )
    return _reply(uploaded)


def upload_batch(service: Service, call: Call) -> Reply:
    if (call.text("UPLOAD_TYPE") or "METADATA").strip().upper() != "METADATA":
        raise InvalidRequest("a batch holds metadata only", header="UPLOAD_TYPE", code="PARAMETER_INVALID")
    call.require_text("tableType")
    table = _table(call)
    uploaded = service.controller.uploads.upload_batch(
        table,
        _form_file(call).path,
        copy=call.flag("COPY_SEGMENT_TO_DEEP_STORE"),
        options=_options(call),
        by=service.caller(call, table),
        take=call.take,
    )
    return _reply(uploaded)


def _fetch(service: Service, call: Call, table: str) -> Uploaded:
    uri = call.require_text("DOWNLOAD_URI")
    assert call.folder is not None, "an upload has a folder"
    file = call.folder / "fetched"
    service.sources.fetch(uri, file, call.take)
    return service.controller.uploads.upload_file(
        table,
        file,
        source_uri=uri,
        options=_options(call),
        by=service.caller(call, table),
        take=call.take,
    )


def _register_metadata(service: Service, call: Call, table: str) -> Uploaded:
    uri = call.require_text("DOWNLOAD_URI")
    return service.controller.uploads.upload_metadata(
        table,
        _form_file(call).path,
        uri,
        copy=call.flag("COPY_SEGMENT_TO_DEEP_STORE"),
        options=_options(call),
        by=service.caller(call, table),
        take=call.take,
    )


def _table(call: Call) -> str:
    name = qualify(call.require_text("tableName").strip(), call.database)
    kind = call.text("tableType")
    return offline_name(name, None if kind is None else parse_type(kind))


def _form_file(call: Call) -> Upload:
    if call.upload is None:
        raise InvalidRequest(
            "the form with the segment is missing", code="FORM_INVALID", hint="send multipart/form-data"
        )
    return call.upload


def _segment_name(sent: Upload) -> str:
    """A Parquet file does not say which segment it is; its name does."""
    return sent.name.removesuffix(".parquet").removesuffix(".tar.gz")


def _options(call: Call) -> UploadOptions:
    expected = call.text("If-Match")
    if expected is not None and not expected.strip().strip('"').lstrip("-").isdigit():
        raise InvalidRequest("If-Match is not a checksum", header="If-Match", code="PARAMETER_INVALID")
    modifier = _modifier(call.text("Pinot-SegmentZKMetadataCustomMapModifier"))
    return UploadOptions(
        allow_refresh=call.flag("allowRefresh"),
        refresh_only=call.flag("REFRESH_ONLY"),
        if_match=None if expected is None else int(expected.strip().strip('"')),
        protected=call.flag("enableParallelPushProtection"),
        allow_in_place=call.flag("allowInPlaceRefresh"),
        accept_opaque=call.flag("acceptOpaque"),
        custom=modifier.map,
        replace_custom=modifier.map_modify_mode.upper() == "REPLACE",
        lease_token=call.text("X-Lease-Token") or "",
    )


def _modifier(text: str | None) -> Modifier:
    if text is None:
        return Modifier()
    try:
        return msgspec.json.decode(text, type=Modifier)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "a header is wrong", header="Pinot-SegmentZKMetadataCustomMapModifier", cause=str(error),
            code="PARAMETER_INVALID",
        ) from error  # fmt: skip


def _reply(uploaded: Uploaded) -> Reply:
    named = ", ".join(uploaded.segments[:10]) + (", …" if len(uploaded.segments) > 10 else "")
    word = "segment" if len(uploaded.segments) == 1 else "segments"
    return Reply(document=status(f"Successfully uploaded {word}: {named} of table: {uploaded.table}"))


_PARAMETERS = (
    Parameter("tableName", "The table. Needed, because it decides who may upload.", is_required=True),
    Parameter("tableType", "The table's type.", choices=("OFFLINE", "REALTIME")),
    flag("enableParallelPushProtection", "Refuse while somebody else uploads the same segment."),
    flag("allowRefresh", "Accept a segment that exists.", default=True),
    flag("allowInPlaceRefresh", "Accept one that queries see, around the lineage."),
    flag("acceptOpaque", "Accept a segment of Pinot's own format, which cannot be queried."),
    header("UPLOAD_TYPE", "What is sent.", ("SEGMENT", "URI", "METADATA")),
    header("DOWNLOAD_URI", "Where the bytes are, for URI and METADATA."),
    header(
        "COPY_SEGMENT_TO_DEEP_STORE",
        "METADATA only: copy the bytes from there, also where queries could read them. DuckDB never can.",
        ("true", "false"),
    ),
    header("REFRESH_ONLY", "Refuse a segment that does not exist.", ("true", "false")),
    header("If-Match", "The checksum that the segment must have at present."),
    header("Pinot-SegmentZKMetadataCustomMapModifier", "Changes to the map that the segment carries."),
    header("X-Lease-Token", "The token that start gave with a lease."),
    DATABASE_HEADER,
    PRECISE_HEADER,
)
_REFUSALS = {
    403: "The user may not, the quota is used up, or the segment's times are wrong.",
    404: "The table is not known.",
    409: "A push forbids it, or somebody else was faster.",
    410: "There is no such segment to refresh.",
    412: "The segment has another checksum.",
}
_UPLOADED = Answer(about="The segment is durable and registered.", schema=STATUS)


def _upload(path: str, name: str) -> Endpoint:
    return Endpoint(
        method="POST", path=path, name=name, access=Access(Role.WRITE, On.QUERY), handle=upload,
        about="Upload a segment.", parameters=_PARAMETERS, body=BodyKind.UPLOAD,
        body_about="One file: the segment as tar.gz or Parquet, or its metadata as tar.gz.",
        answer=_UPLOADED, refusals=_REFUSALS,
    )  # fmt: skip


class DiscardBody(msgspec.Struct, frozen=True):
    """Files in the deep store, by path or address."""

    files: list[str]


def discard(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    removed = service.controller.orphans.discard_files(table, call.read(DiscardBody).files)
    return Reply(document={"removed": list(removed)})


ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/discardFiles", name="DiscardFiles", access=Access(Role.WRITE),
        handle=discard, about="Remove files that were built in the deep store and became no segment.",
        parameters=(TABLE, TYPE, DATABASE_HEADER, PRECISE_HEADER),
        body=BodyKind.JSON, body_type=DiscardBody, has_list=True, body_about="The files.",
        answer=Answer(about="Which went.", schema=OBJECT), refusals=NO_TABLE,
    ),
    _upload("/v2/segments", "UploadSegment"),
    _upload("/segments", "UploadSegmentV1"),
    Endpoint(
        method="POST", path="/segments/batchUpload", name="UploadSegments",
        access=Access(Role.WRITE, On.QUERY), handle=upload_batch, about="Register many segments at once.",
        parameters=_PARAMETERS, body=BodyKind.UPLOAD,
        body_about="One tar.gz with the metadata of every segment and the list of their addresses.",
        answer=_UPLOADED, refusals=_REFUSALS,
    ),
)  # fmt: skip
