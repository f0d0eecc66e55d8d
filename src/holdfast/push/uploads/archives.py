"""Archives of segments, as Pinot's tools send and fetch them: a gzipped tar.

An archive comes from outside. It is read as a stream, within limits; only
regular files are accepted, nothing is written under a name that it chooses,
and what is not needed is skipped. Headers are read here, not by `tarfile`:
that reads sparse maps of any length into memory before a caller can refuse
them, and older versions take half a minute for one extended header.
"""

import gzip
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO, UnsupportedOperation
from typing import BinaryIO

from holdfast.errors import InvalidRequest
from holdfast.format.malformed import Malformed
from holdfast.format.segments import (
    Creation,
    SegmentDescription,
    decode_creation,
    decode_description,
    encode_creation,
    encode_description,
)
from holdfast.push.segments.names import check_segment_name

PROPERTIES = "metadata.properties"
CREATION = "creation.meta"
COLUMNS = "columns.parquet"
ALL_SEGMENTS = "all_segments_metadata"

_BLOCK = 512
_CHUNK = 1 << 20
_HEADER_BYTES_MAX = 1 << 16
_METADATA_BYTES_MAX = 16 << 20
_RATIO_GRACE_BYTES = 4 << 20
"""Small archives may have any ratio: the metadata of a wide table compresses well."""
_FILE, _FOLDER = b"0\0", b"5"
_LONG_NAME, _EXTENDED, _EXTENDED_FOR_ALL = b"L", b"x", b"g"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    entries: int = 10_000
    expanded_bytes: int = 8 << 30
    ratio: int = 200
    """Expanded bytes for each byte of the archive."""
    depth: int = 3
    batch_bytes: int = 256 << 20
    """Expanded bytes of a batch, whose metadata are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedSegment:
    """What one archive held."""

    description: SegmentDescription
    creation: Creation
    has_columns: bool
    """The Parquet file is where the caller wanted it."""
    is_opaque: bool
    """It holds files of Pinot's own format, which cannot be queried."""
    expanded_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSegment:
    description: SegmentDescription
    creation: Creation
    uri: str


class RoomNeeded(Exception):
    """The Parquet file of an archive is larger than the caller has room for. Nothing was written of it."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def unpack_segment(
    source: BinaryIO, columns: BinaryIO, *, limits: ArchiveLimits | None = None, room: int | None = None
) -> UnpackedSegment:
    """Read the archive of one segment. Its Parquet file, if it has one, goes to `columns`.

    If the archive is refused, a part of one may be there. `RoomNeeded` if it has
    more bytes than `room`; None: there is room for any.
    """
    limits = limits or ArchiveLimits()
    metadata: dict[str, bytes] = {}
    folders: set[str] = set()
    has_columns = has_others = False
    expanded = 0
    for entry in _entries(source, limits):
        name = entry.path[-1]
        folders.update(entry.path[:1] if len(entry.path) > 1 else ())
        expanded += entry.size
        if name in (PROPERTIES, CREATION):
            if name in metadata:
                raise _refusal("the archive holds a file twice", entry=name)
            metadata[name] = entry.content()
        elif name == COLUMNS:
            if has_columns:
                raise _refusal("the archive holds a file twice", entry=name)
            if entry.size > limits.expanded_bytes:
                raise _refusal("the archive expands to too many bytes", limit_bytes=limits.expanded_bytes)
            if room is not None and entry.size > room:
                raise RoomNeeded(entry.size)
            entry.save(columns)
            has_columns = True
        else:
            has_others = True
    if len(folders) > 1:
        raise _refusal("the archive holds more than one folder", folders=", ".join(sorted(folders))[:200])
    return UnpackedSegment(
        description=_description(_require(metadata, PROPERTIES), folder=next(iter(folders), "")),
        creation=_creation(_require(metadata, CREATION)),
        has_columns=has_columns,
        is_opaque=has_others and not has_columns,
        expanded_bytes=expanded,
    )


def unpack_batch(source: BinaryIO, *, limits: ArchiveLimits | None = None) -> dict[str, BatchSegment]:
    """Read the archive of a batch upload: metadata of many segments, and where each one is."""
    limits = limits or ArchiveLimits()
    limits = replace(limits, expanded_bytes=min(limits.expanded_bytes, limits.batch_bytes))
    files: dict[str, bytes] = {}
    for entry in _entries(source, limits):
        name = entry.path[-1]
        if name in files:
            raise _refusal("the archive holds a file twice", entry="/".join(entry.path))
        files[name] = entry.content()
    lines = _text(files.pop(ALL_SEGMENTS, b"")).splitlines()
    if not lines or len(lines) % 2:
        raise _refusal("the archive's list of segments is missing or cut off", entry=ALL_SEGMENTS)
    segments: dict[str, BatchSegment] = {}
    for name, uri in zip(lines[::2], lines[1::2], strict=True):
        check_segment_name(name)
        description = _description(_require(files, f"{name}.{PROPERTIES}"), folder=name)
        creation = _creation(_require(files, f"{name}.{CREATION}"))
        if name in segments:
            raise _refusal("the archive lists a segment twice", segment=name)
        segments[name] = BatchSegment(description=description, creation=creation, uri=uri)
    return segments


def pack_segment(
    sink: BinaryIO, description: SegmentDescription, creation: Creation, columns: BinaryIO, *, size_bytes: int
) -> None:
    """Write the archive of a segment; equal input gives equal bytes."""
    for piece in archive_pieces(description, creation, columns, size_bytes=size_bytes):
        sink.write(piece)


def archive_pieces(
    description: SegmentDescription, creation: Creation, columns: BinaryIO, *, size_bytes: int
) -> Iterator[bytes]:
    """The archive that `pack_segment` writes, piece by piece, so that it is never kept anywhere."""
    packed = BytesIO()
    # The Parquet file is compressed already, so the fastest level loses nothing.
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0, filename="") as compressed:
        for piece in _tar_of_segment(description, creation, columns, size_bytes):
            compressed.write(piece)
            if packed.tell() >= _BLOCK:
                yield packed.getvalue()
                packed.seek(0)
                packed.truncate()
    yield packed.getvalue()


def _tar_of_segment(
    description: SegmentDescription, creation: Creation, columns: BinaryIO, size_bytes: int
) -> Iterator[bytes]:
    written = 0
    for folder in (description.name, f"{description.name}/v3"):
        yield (header := _header(_folder(folder)))
        written += len(header)
    for name, content, size in (
        (PROPERTIES, BytesIO(described := encode_description(description)), len(described)),
        (CREATION, BytesIO(created := encode_creation(creation)), len(created)),
        (COLUMNS, columns, size_bytes),
    ):
        yield (header := _header(_file(f"{description.name}/v3/{name}", size)))
        left = size
        while left:
            piece = content.read(min(_CHUNK, left))
            if not piece:
                raise OSError(f"{name} has {left} bytes less than it should")
            left -= len(piece)
            yield piece
        yield bytes(-size % _BLOCK)
        written += len(header) + size + -size % _BLOCK
    end = 2 * _BLOCK
    yield bytes(end + -(written + end) % tarfile.RECORDSIZE)


def pack_batch(segments: Iterable[BatchSegment]) -> bytes:
    """The archive of a batch upload; equal input gives equal bytes."""
    sink = BytesIO()
    lines: list[str] = []
    with (
        gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1, mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for segment in segments:
            name = segment.description.name
            lines += [name, segment.uri]
            for ending, content in (
                (PROPERTIES, encode_description(segment.description)),
                (CREATION, encode_creation(segment.creation)),
            ):
                _add_file(archive, f"{name}.{ending}", BytesIO(content), len(content))
        listed = "\n".join(lines).encode()
        _add_file(archive, ALL_SEGMENTS, BytesIO(listed), len(listed))
    return sink.getvalue()


def segment_crc(description: SegmentDescription, columns: BinaryIO) -> int:
    """Adler-32 over the payload in the order of the names: the Parquet file, then the properties."""
    crc = 1
    while chunk := columns.read(_CHUNK):
        crc = zlib.adler32(chunk, crc)
    return whole_crc(description, crc)


def whole_crc(description: SegmentDescription, crc: int) -> int:
    """The checksum of a segment whose Parquet file has this one."""
    return zlib.adler32(encode_description(description), crc)


@dataclass(slots=True)
class _Entry:
    """A regular file; its bytes can be taken once, before the next entry."""

    path: tuple[str, ...]
    size: int
    _source: "_Expanded"
    _left: int

    def content(self) -> bytes:
        if self.size > _METADATA_BYTES_MAX:
            raise _refusal(
                "a metadata file is too large",
                entry="/".join(self.path),
                size_bytes=self.size,
                limit_bytes=_METADATA_BYTES_MAX,
            )
        return b"".join(self._chunks())

    def save(self, sink: BinaryIO) -> None:
        for chunk in self._chunks():
            sink.write(chunk)

    def skip(self) -> None:
        for _ in self._chunks():
            pass
        self._source.exactly(-self.size % _BLOCK)

    def _chunks(self) -> Iterator[bytes]:
        while self._left:
            chunk = self._source.exactly(min(_CHUNK, self._left))
            self._left -= len(chunk)
            yield chunk


class _Expanded:
    """The archive without its compression, within the limits."""

    def __init__(self, source: BinaryIO, limits: ArchiveLimits) -> None:
        self._source = _Counted(source)
        self._expanded = gzip.GzipFile(fileobj=self._source, mode="rb")
        self._limits = limits
        self._total = 0

    def exactly(self, size: int) -> bytes:
        content = self.at_most(size)
        if len(content) < size:
            raise _refusal("the archive is cut off")
        return content

    def at_most(self, size: int) -> bytes:
        parts: list[bytes] = []
        left = size
        while left:
            try:
                part = self._expanded.read(left)
            except (OSError, EOFError, zlib.error, struct.error) as error:
                raise _refusal("the archive is not gzip, or is damaged", cause=str(error)) from error
            if not part:
                break
            self._count(len(part))
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def finish(self) -> None:
        """Read to the end, so that a checksum that does not fit is noticed."""
        while self.at_most(_CHUNK):
            pass

    def _count(self, size: int) -> None:
        self._total += size
        limits = self._limits
        if self._total > limits.expanded_bytes:
            raise _refusal("the archive expands to too many bytes", limit_bytes=limits.expanded_bytes)
        if self._total > max(_RATIO_GRACE_BYTES, limits.ratio * self._source.total):
            raise _refusal("the archive expands too far for its size", limit=limits.ratio)


class _Counted:
    """Counts what is taken from the archive."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.total = 0

    def read(self, size: int, /) -> bytes:
        content = self._source.read(size)
        self.total += len(content)
        return content

    def seek(self, at: int, /) -> object:
        raise UnsupportedOperation("an archive is read once, from its beginning")


@dataclass(slots=True)
class _Overrides:
    """What an extended header sets for the file that follows it."""

    path: str | None = None
    size: int | None = None


def _entries(source: BinaryIO, limits: ArchiveLimits) -> Iterator[_Entry]:
    """The regular files of an archive in their order; everything doubtful is refused."""
    expanded = _Expanded(source, limits)
    overrides = _Overrides()
    count = 0
    while (header := expanded.exactly(_BLOCK)).strip(b"\0"):
        count += 1
        if count > limits.entries:
            raise _refusal("the archive holds too many entries", limit=limits.entries)
        kind = header[156:157]
        size = _parse_size(header)
        if kind in (_LONG_NAME, _EXTENDED, _EXTENDED_FOR_ALL):
            _read_extension(kind, _extension(expanded, size), overrides)
            continue
        path = _split_path(overrides.path if overrides.path is not None else _name(header), limits)
        if kind == _FOLDER:
            overrides = _Overrides()
            continue
        if kind not in (_FILE[:1], _FILE[1:]):
            raise _refusal("the archive holds something else than files", entry="/".join(path))
        size = size if overrides.size is None else overrides.size
        overrides = _Overrides()
        entry = _Entry(path, size, expanded, size)
        yield entry
        entry.skip()
    expanded.finish()


def _extension(expanded: _Expanded, size: int) -> bytes:
    if size > _HEADER_BYTES_MAX:
        raise _refusal("an extended header of the archive is too large", size_bytes=size)
    content = expanded.exactly(size)
    expanded.exactly(-size % _BLOCK)
    return content


def _read_extension(kind: bytes, content: bytes, overrides: _Overrides) -> None:
    if kind == _LONG_NAME:
        overrides.path = _text(content.rstrip(b"\0"))
        return
    for key, value in _parse_pax_records(content):
        if key.startswith("GNU.sparse"):
            raise _refusal("the archive holds a sparse file")
        if kind == _EXTENDED_FOR_ALL:
            if key in ("path", "size", "linkpath"):
                raise _refusal("the archive gives all its files one name or size")
        elif key == "path":
            overrides.path = value
        elif key == "size":
            overrides.size = _decimal(value)


def _parse_pax_records(content: bytes) -> Iterator[tuple[str, str]]:
    """Records of the form `<length> <key>=<value>\\n`."""
    at = 0
    while at < len(content):
        blank = content.find(b" ", at, at + 8)
        length = _decimal(_text(content[at:blank])) if blank > 0 else 0
        record = content[blank + 1 : at + length]
        if length < 5 or at + length > len(content) or not record.endswith(b"\n") or b"=" not in record:
            raise _refusal("an extended header of the archive is damaged")
        key, _, value = _text(record[:-1]).partition("=")
        yield key, value
        at += length


def _parse_size(header: bytes) -> int:
    fields = header[:148] + b" " * 8 + header[156:]
    stored = header[148:156].strip(b" \0")
    if not stored or not stored.isdigit() or _octal(stored) != sum(fields):
        raise _refusal("the archive is not a tar, or is damaged")
    size = header[124:136]
    if size[0] == 0x80:
        return int.from_bytes(size[1:], "big")
    return _octal(size.strip(b" \0"))


def _name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _split_path(name: str, limits: ArchiveLimits) -> tuple[str, ...]:
    path = name.removesuffix("/")
    # Tar programs write `./` before relative names.
    parts = tuple(path.removeprefix("./").split("/"))
    plain = path == "." or not {"", ".", ".."}.intersection(parts)
    if not plain or "\\" in name or "\0" in name:
        raise _refusal("a name in the archive leads elsewhere", entry=repr(name[:200]))
    if len(parts) > limits.depth:
        raise _refusal("the archive's folders are too deep", entry=repr(name[:200]), limit=limits.depth)
    return parts


def _description(content: bytes, *, folder: str) -> SegmentDescription:
    try:
        description = decode_description(content)
    except Malformed as error:
        raise _refusal("the segment's properties cannot be read", cause=str(error)) from error
    check_segment_name(description.name)
    if folder and folder != description.name and folder != "v3":
        raise _refusal(
            "the archive is named after another segment", segment=description.name, folder=repr(folder[:200])
        )
    return description


def _creation(content: bytes) -> Creation:
    try:
        return decode_creation(content)
    except Malformed as error:
        raise _refusal("the segment's creation data cannot be read", cause=str(error)) from error


def _require(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise _refusal("the archive lacks a file", entry=name)
    return files[name]


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _refusal("a name in the archive is not UTF-8") from error


def _octal(digits: bytes) -> int:
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise _refusal("a header of the archive is damaged")
    return int(digits, 8)


def _decimal(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise _refusal("an extended header of the archive is damaged")
    return int(digits)


def _add_file(archive: tarfile.TarFile, name: str, content: BinaryIO, size: int) -> None:
    archive.addfile(_file(name, size), content)


def _folder(name: str) -> tarfile.TarInfo:
    folder = tarfile.TarInfo(name)
    folder.type = tarfile.DIRTYPE
    folder.mode = 0o755
    return folder


def _file(name: str, size: int) -> tarfile.TarInfo:
    file = tarfile.TarInfo(name)
    file.size = size
    return file


def _header(entry: tarfile.TarInfo) -> bytes:
    return entry.tobuf(tarfile.PAX_FORMAT)


def _refusal(message: str, **facts: object) -> InvalidRequest:
    return InvalidRequest(message, hint="", **facts, code="INVALID_ARCHIVE")
