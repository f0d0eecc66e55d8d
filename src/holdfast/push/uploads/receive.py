"""Uploads: segments as clients send them, in files, in archives, or by description and address."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from holdfast.clock import Clock
from holdfast.config.push import PushTable, raw_name
from holdfast.errors import Refused
from holdfast.push.calls import (
    Caller,
    Uploaded,
    UploadOptions,
)
from holdfast.push.segments.deep_store import DeepStore, segment_of_file
from holdfast.push.state.catalog import Catalog
from holdfast.push.uploads.archives import ArchiveLimits, RoomNeeded
from holdfast.push.uploads.inspection.inspect import Form, InspectedSegment, Question
from holdfast.push.uploads.inspection.pool import Inspect
from holdfast.push.uploads.inspection.stored_types import kinds_of
from holdfast.push.uploads.register import (
    Payload,
    Registrar,
)

Take = Callable[[int], None]
"""Claims bytes of disk for an upload under way, or refuses; they are given back when it is over."""


def take_freely(size: int) -> None:
    """Claims nothing: for callers that are not strangers."""


Fetch = Callable[[str, Path, Take], None]
"""Copies what an address names to a new file, and claims its bytes; refuses what is not allowed."""


class Uploads:
    """All methods take the typed table name.

    `take` claims what an upload takes on disk beside what the caller has put
    there: what is unpacked, and what is fetched.
    """

    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        registrar: Registrar,
        clock: Clock,
        *,
        limits: ArchiveLimits,
        inspect: Inspect,
        fetch: Fetch | None,
        canonical_uri: Callable[[str], str] | None,
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._registrar = registrar
        self._clock = clock
        self._limits = limits
        self._inspect = inspect
        self._fetch = fetch
        self._canonical_uri = canonical_uri

    def upload_file(
        self,
        table: str,
        file: Path,
        *,
        name: str = "",
        source_uri: str = "",
        options: UploadOptions,
        by: Caller,
        take: Take = take_freely,
    ) -> Uploaded:
        """Keep and register the segment in a Parquet file (`name` says which) or an archive."""
        named = name or source_uri.rpartition("/")[2]
        config = self._catalog.table(table)
        with open_payload(
            self._inspect,
            file,
            name=named,
            config=config,
            now_ms=self._clock.now_ms(),
            accept_opaque=options.accept_opaque,
            limits=self._limits,
            kinds=self._kinds(table),
            take=take,
        ) as payload:
            return self._registrar.register(table, [payload], options=options, by=by)

    def upload_metadata(
        self,
        table: str,
        archive: Path,
        uri: str,
        *,
        copy: bool,
        options: UploadOptions,
        by: Caller,
        take: Take = take_freely,
    ) -> Uploaded:
        """Register a segment whose bytes are at an address; see `register` for when they are copied."""
        (described,) = read_descriptions(
            self._inspect, archive, Form.DESCRIPTION, limits=self._limits, kinds=self._kinds(table)
        )
        payload = replace(described, uri=uri)
        return self.register(table, [payload], copy=copy, options=options, by=by, take=take)

    def upload_batch(
        self,
        table: str,
        archive: Path,
        *,
        copy: bool,
        options: UploadOptions,
        by: Caller,
        take: Take = take_freely,
    ) -> Uploaded:
        """As `upload_metadata` for many segments, registered in one write."""
        described = read_descriptions(
            self._inspect, archive, Form.BATCH, limits=self._limits, kinds=self._kinds(table)
        )
        return self.register(table, described, copy=copy, options=options, by=by, take=take)

    def register(
        self,
        table: str,
        described: Sequence[Payload],
        *,
        copy: bool,
        options: UploadOptions,
        by: Caller,
        take: Take = take_freely,
    ) -> Uploaded:
        """Register segments whose bytes are at the addresses in their descriptions, in one write.

        The bytes are copied into the deep store if asked to, and where queries
        could not read them otherwise: a push must not publish what queries cannot read.
        Until all of them are there, what was fetched counts together.
        """
        if not copy and all(self._is_in_reach(one.uri) for one in described):
            payloads = [self._place(table, one) for one in described]
            return self._registrar.register(table, payloads, options=options, by=by)
        if self._fetch is None:
            raise Refused("nothing here fetches from addresses", code="URI_REFUSED")
        config, kinds = self._catalog.table(table), self._kinds(table)
        with ExitStack() as opened:
            folder = Path(opened.enter_context(TemporaryDirectory(prefix="holdfast-")))
            payloads = []
            for number, one in enumerate(described):
                if not copy and self._is_in_reach(one.uri):
                    payloads.append(self._place(table, one))
                    continue
                file = folder / str(number)
                self._fetch(one.uri, file, take)
                payload = opened.enter_context(
                    open_payload(
                        self._inspect,
                        file,
                        name=one.name,
                        config=config,
                        now_ms=one.created_ms,
                        accept_opaque=options.accept_opaque,
                        limits=self._limits,
                        kinds=kinds,
                        take=take,
                    )
                )
                payloads.append(replace(payload, name=one.name, crc=one.crc))
            return self._registrar.register(table, payloads, options=options, by=by)

    def _kinds(self, table: str) -> dict[str, str]:
        return kinds_of(self._catalog.schema_of(table))

    def _is_in_reach(self, uri: str) -> bool:
        """Whether queries can read the bytes where they are; what is on the web they cannot."""
        is_addressed = self._canonical_uri is not None and not uri.startswith("http")
        return is_addressed or self._deep_store.path_of(uri) is not None

    def _place(self, table: str, payload: Payload) -> Payload:
        """The segment by its path if its file is in the deep store, or by an address that is allowed.

        Only the file that belongs to this very segment by its name: a caller that
        could register another's could have it deleted.
        """
        path = self._deep_store.path_of(payload.uri)
        if path is None:
            assert self._canonical_uri is not None, "what is out of reach is copied"
            return replace(payload, uri=self._canonical_uri(payload.uri))
        folder, _, name = path.partition("/")
        if folder != raw_name(table) or "/" in name or segment_of_file(path) != payload.name:
            raise Refused(
                "the file in the deep store is not one of this segment",
                segment=payload.name,
                file=path,
                code="URI_REFUSED",
                hint="build it as <table>/<segment>__<token>.parquet",
            )
        return replace(payload, uri=path, is_placed=True)


@contextmanager
def open_payload(
    inspect: Inspect,
    file: Path,
    *,
    name: str,
    config: PushTable,
    now_ms: int,
    accept_opaque: bool,
    limits: ArchiveLimits,
    kinds: dict[str, str],
    take: Take,
) -> Iterator[Payload]:
    """The segment in an uploaded file, a Parquet file or an archive; unpacked while the block runs.

    What is unpacked is claimed before it is written.
    """
    question = Question(
        form=Form.SEGMENT,
        limits=limits,
        name=name,
        table=config.table,
        time_column=config.time_column,
        created_ms=now_ms,
        accept_opaque=accept_opaque,
        kinds=kinds,
        room=0,
    )
    columns = file.with_name(file.name + ".columns")
    try:
        with open(file, "rb") as source, open(columns, "x+b", opener=_open_for_us) as target:
            try:
                (found,) = inspect(source, target, question)
            except RoomNeeded as needed:
                take(needed.size)
                source.seek(0)
                (found,) = inspect(source, target, msgspec.structs.replace(question, room=needed.size))
        kept = columns if found.is_unpacked else file
        yield replace(_payload(found), file=kept, size_bytes=kept.stat().st_size)
    finally:
        columns.unlink(missing_ok=True)


def read_descriptions(
    inspect: Inspect, file: Path, form: Form, *, limits: ArchiveLimits, kinds: dict[str, str]
) -> list[Payload]:
    """The segments that an archive of metadata describes; their bytes are elsewhere."""
    with open(file, "rb") as source, open(os.devnull, "r+b") as nowhere:
        question = Question(form=form, limits=limits, kinds=kinds)
        return list(map(_payload, inspect(source, nowhere, question)))


def _payload(found: InspectedSegment) -> Payload:
    return Payload(
        name=found.name,
        crc=found.crc,
        docs=found.docs,
        created_ms=found.created_ms,
        start_ms=found.start_ms,
        end_ms=found.end_ms,
        uri=found.uri,
        is_opaque=found.is_opaque,
        columns=found.columns,
    )


def _open_for_us(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
