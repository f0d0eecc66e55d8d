"""Intake: segments as clients send them, in files, in archives, or described and to be found elsewhere."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.clock import Clock
from holdfast.config.push import raw_name
from holdfast.errors import Refused
from holdfast.push.archives import ArchiveLimits, unpack_batch
from holdfast.push.catalog import Catalog
from holdfast.push.deep_store import DeepStore, segment_of_file
from holdfast.push.ingest import Ingest
from holdfast.push.payloads import Payload, batch_payload, described_payload, opened_payload
from holdfast.push.reports import Caller, Uploaded, UploadOptions

Fetch = Callable[[str, Path], None]
"""Copies what an address names to a new file; refuses addresses that are not allowed."""


class Intake:
    """All methods take the typed table name."""

    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        ingest: Ingest,
        clock: Clock,
        *,
        limits: ArchiveLimits,
        fetch: Fetch | None,
        check_uri: Callable[[str], None] | None,
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._ingest = ingest
        self._clock = clock
        self._limits = limits
        self._fetch = fetch
        self._check_uri = check_uri

    def upload_file(
        self,
        table: str,
        file: Path,
        *,
        name: str = "",
        source_uri: str = "",
        options: UploadOptions,
        by: Caller,
    ) -> Uploaded:
        """Keep and register the segment in a Parquet file (`name` says which) or an archive."""
        named = name or source_uri.rpartition("/")[2]
        config = self._catalog.table(table)
        with opened_payload(
            file,
            name=named,
            config=config,
            now_ms=self._clock.now_ms(),
            accept_opaque=options.accept_opaque,
            limits=self._limits,
        ) as payload:
            return self._ingest.upload(table, [payload], options=options, by=by)

    def upload_metadata(
        self, table: str, archive: Path, uri: str, *, copy: bool, options: UploadOptions, by: Caller
    ) -> Uploaded:
        """Register a segment whose bytes are at an address; see `register` for when they are copied."""
        described = described_payload(archive, uri=uri)
        return self.register(table, [described], copy=copy, options=options, by=by)

    def upload_batch(
        self, table: str, archive: Path, *, copy: bool, options: UploadOptions, by: Caller
    ) -> Uploaded:
        """As `upload_metadata` for many segments, registered in one write."""
        with open(archive, "rb") as source:
            described = [batch_payload(found) for found in unpack_batch(source, limits=self._limits).values()]
        return self.register(table, described, copy=copy, options=options, by=by)

    def register(
        self, table: str, described: Sequence[Payload], *, copy: bool, options: UploadOptions, by: Caller
    ) -> Uploaded:
        """Register segments whose bytes are at the addresses in their descriptions, in one write.

        The bytes are copied into the deep store if asked to, and where queries
        could not read them otherwise: a push must not publish what nobody can read.
        """
        if not copy and all(self._is_in_reach(one.uri) for one in described):
            payloads = [self._placed(table, one) for one in described]
            return self._ingest.upload(table, payloads, options=options, by=by)
        if self._fetch is None:
            raise Refused("nothing here fetches from addresses", code="URI_REFUSED")
        config = self._catalog.table(table)
        with ExitStack() as opened:
            folder = Path(opened.enter_context(TemporaryDirectory(prefix="holdfast-")))
            payloads = []
            for number, one in enumerate(described):
                if not copy and self._is_in_reach(one.uri):
                    payloads.append(self._placed(table, one))
                    continue
                file = folder / str(number)
                self._fetch(one.uri, file)
                payload = opened.enter_context(
                    opened_payload(
                        file,
                        name=one.name,
                        config=config,
                        now_ms=one.created_ms,
                        accept_opaque=options.accept_opaque,
                        limits=self._limits,
                    )
                )
                payloads.append(replace(payload, name=one.name, crc=one.crc))
            return self._ingest.upload(table, payloads, options=options, by=by)

    def _is_in_reach(self, uri: str) -> bool:
        """Whether queries can read the bytes where they are; what is on the web they cannot."""
        is_addressed = self._check_uri is not None and not uri.startswith("http")
        return is_addressed or self._deep_store.path_of(uri) is not None

    def _placed(self, table: str, payload: Payload) -> Payload:
        """The segment by its path if its file is in the deep store, or by an address that is allowed.

        Only the file that belongs to this very segment by its name: whoever
        could register another's could have it deleted.
        """
        path = self._deep_store.path_of(payload.uri)
        if path is None:
            assert self._check_uri is not None, "what is out of reach is copied"
            self._check_uri(payload.uri)
            return payload
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
