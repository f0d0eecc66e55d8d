"""Routes of uploads: a file, an address, or metadata only; one segment or many."""

from typing import Annotated

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.calls import (
    Uploaded,
    UploadOptions,
)
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import NO_TABLE, Answer, BodyKind, Call, Endpoint, Reply, Upload
from holdfast.server.parameters import (
    InDatabase,
    LeaseToken,
    NeededType,
    OfTypedTablePrecisely,
    Parameter,
    Precise,
    TableType,
    header,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, STATUS, status
from holdfast.server.table_names import offline_name, qualify


class Modifier(msgspec.Struct, rename="camel", frozen=True):
    """Changes to the map that a segment carries."""

    map_modify_mode: str = "UPDATE"
    map: dict[str, str] = {}


class UploadParameters(InDatabase, frozen=True, kw_only=True):
    table_name: Annotated[str, Parameter("The table. Needed, because it decides who may upload.")]
    table_type: TableType = None
    enable_parallel_push_protection: Annotated[
        bool, Parameter("Refuse while somebody else uploads the same segment.")
    ] = False
    allow_refresh: Annotated[bool, Parameter("Accept a segment that exists.")] = True
    allow_in_place_refresh: Annotated[bool, Parameter("Accept one that queries see, around the lineage.")] = (
        False
    )
    accept_opaque: Annotated[
        bool, Parameter("Accept a segment of Pinot's own format, which cannot be queried.")
    ] = False
    upload_type: Annotated[
        str | None, header("UPLOAD_TYPE", "What is sent.", ("SEGMENT", "URI", "METADATA"))
    ] = None
    download_uri: Annotated[
        str | None, header("DOWNLOAD_URI", "Where the bytes are, for URI and METADATA.")
    ] = None
    copy_segment_to_deep_store: Annotated[
        bool,
        header(
            "COPY_SEGMENT_TO_DEEP_STORE",
            "METADATA only: copy the bytes from there, also where queries could read them. DuckDB never can.",
        ),
    ] = False
    refresh_only: Annotated[bool, header("REFRESH_ONLY", "Refuse a segment that does not exist.")] = False
    if_match: Annotated[
        str | None, header("If-Match", "The checksum that the segment must have at present.")
    ] = None
    modifier: Annotated[
        str | None,
        header("Pinot-SegmentZKMetadataCustomMapModifier", "Changes to the map that the segment carries."),
    ] = None
    lease_token: LeaseToken = ""
    precise: Precise = None

    @property
    def typed(self) -> str:
        """The table's name in its database and with its type."""
        return offline_name(qualify(self.table_name.strip(), self.database), self.table_type)


class BatchUploadParameters(UploadParameters, frozen=True, kw_only=True):
    table_type: NeededType


def upload(service: Service, call: Call[UploadParameters]) -> Reply:
    table = call.parameters.typed
    match (call.parameters.upload_type or "SEGMENT").strip().upper():
        case "SEGMENT":
            sent = _form_file(call)
            uploaded = service.controller.uploads.upload_file(
                table,
                sent.path,
                name=_segment_name(sent),
                options=_options(call.parameters),
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


def upload_batch(service: Service, call: Call[BatchUploadParameters]) -> Reply:
    if (call.parameters.upload_type or "METADATA").strip().upper() != "METADATA":
        raise InvalidRequest("a batch holds metadata only", header="UPLOAD_TYPE", code="PARAMETER_INVALID")
    table = call.parameters.typed
    uploaded = service.controller.uploads.upload_batch(
        table,
        _form_file(call).path,
        copy=call.parameters.copy_segment_to_deep_store,
        options=_options(call.parameters),
        by=service.caller(call, table),
        take=call.take,
    )
    return _reply(uploaded)


def _fetch(service: Service, call: Call[UploadParameters], table: str) -> Uploaded:
    uri = _download_uri(call)
    assert call.folder is not None, "an upload has a folder"
    file = call.folder / "fetched"
    service.sources.fetch(uri, file, call.take)
    return service.controller.uploads.upload_file(
        table,
        file,
        source_uri=uri,
        options=_options(call.parameters),
        by=service.caller(call, table),
        take=call.take,
    )


def _register_metadata(service: Service, call: Call[UploadParameters], table: str) -> Uploaded:
    uri = _download_uri(call)
    return service.controller.uploads.upload_metadata(
        table,
        _form_file(call).path,
        uri,
        copy=call.parameters.copy_segment_to_deep_store,
        options=_options(call.parameters),
        by=service.caller(call, table),
        take=call.take,
    )


def _download_uri(call: Call[UploadParameters]) -> str:
    uri = call.parameters.download_uri
    if uri is None:
        raise InvalidRequest("a parameter is missing", parameter="DOWNLOAD_URI", code="PARAMETER_MISSING")
    return uri


def _form_file(call: Call[UploadParameters]) -> Upload:
    if call.upload is None:
        raise InvalidRequest(
            "the form with the segment is missing", code="FORM_INVALID", hint="send multipart/form-data"
        )
    return call.upload


def _segment_name(sent: Upload) -> str:
    """A Parquet file does not say which segment it is; its name does."""
    return sent.name.removesuffix(".parquet").removesuffix(".tar.gz")


def _options(parameters: UploadParameters) -> UploadOptions:
    expected = parameters.if_match
    if expected is not None and not expected.strip().strip('"').lstrip("-").isdigit():
        raise InvalidRequest("If-Match is not a checksum", header="If-Match", code="PARAMETER_INVALID")
    modifier = _modifier(parameters.modifier)
    return UploadOptions(
        allow_refresh=parameters.allow_refresh,
        refresh_only=parameters.refresh_only,
        if_match=None if expected is None else int(expected.strip().strip('"')),
        protected=parameters.enable_parallel_push_protection,
        allow_in_place=parameters.allow_in_place_refresh,
        accept_opaque=parameters.accept_opaque,
        custom=modifier.map,
        replace_custom=modifier.map_modify_mode.upper() == "REPLACE",
        lease_token=parameters.lease_token,
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


_REFUSALS = {
    403: "The user may not, the quota is used up, or the segment's times are wrong.",
    404: "The table is not known.",
    409: "A push forbids it, or somebody else was faster.",
    410: "There is no such segment to refresh.",
    412: "The segment has another checksum.",
}
_UPLOADED = Answer(about="The segment is durable and registered.", schema=STATUS)


def _upload(path: str, name: str) -> Endpoint[UploadParameters]:
    return Endpoint(
        method="POST", path=path, name=name, access=Access(Role.WRITE, On.QUERY), handle=upload,
        about="Upload a segment.", parameters=UploadParameters, body=BodyKind.UPLOAD,
        body_about="One file: the segment as tar.gz or Parquet, or its metadata as tar.gz.",
        answer=_UPLOADED, refusals=_REFUSALS,
    )  # fmt: skip


class DiscardBody(msgspec.Struct, frozen=True):
    """Files in the deep store, by path or address."""

    files: list[str]


def discard(service: Service, call: Call[OfTypedTablePrecisely]) -> Reply:
    removed = service.controller.orphans.discard_files(call.parameters.typed, call.read(DiscardBody).files)
    return Reply(document={"removed": list(removed)})


ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/discardFiles", name="DiscardFiles", access=Access(Role.WRITE),
        handle=discard, about="Remove files that were built in the deep store and became no segment.",
        parameters=OfTypedTablePrecisely,
        body=BodyKind.JSON, body_type=DiscardBody, has_list=True, body_about="The files.",
        answer=Answer(about="Which went.", schema=OBJECT), refusals=NO_TABLE,
    ),
    _upload("/v2/segments", "UploadSegment"),
    _upload("/segments", "UploadSegmentV1"),
    Endpoint(
        method="POST", path="/segments/batchUpload", name="UploadSegments",
        access=Access(Role.WRITE, On.QUERY), handle=upload_batch, about="Register many segments at once.",
        parameters=BatchUploadParameters, body=BodyKind.UPLOAD,
        body_about="One tar.gz with the metadata of every segment and the list of their addresses.",
        answer=_UPLOADED, refusals=_REFUSALS,
    ),
)  # fmt: skip
