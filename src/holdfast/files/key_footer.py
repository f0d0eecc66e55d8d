"""What the footer of a base file says about its keys: their range and a bloom filter.

Both may only promise too much, never too little: a key that was deleted may
still seem to be there.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.format.bloom import DYNAMIC, build_bloom, decode_bloom, extend_bloom
from holdfast.format.record_keys import key_range, keys_within

_BLOOM = "org.apache.hudi.bloomfilter"
_BLOOM_LEGACY = "com.uber.hoodie.bloomfilter"
_BLOOM_TYPE = "hoodie_bloom_filter_type_code"
_LEAST = "hoodie_min_record_key"
_GREATEST = "hoodie_max_record_key"


class Verdict(Enum):
    """Whether a file may hold one of some keys."""

    OUT_OF_RANGE = auto()
    NOT_IN_BLOOM = auto()
    MAYBE = auto()


@dataclass(frozen=True, slots=True)
class KeyFooter:
    bloom: str | None = None
    bloom_type: str | None = None
    least: str | None = None
    greatest: str | None = None

    @classmethod
    def of_file(cls, metadata: pq.FileMetaData) -> Self:
        values = {name.decode(): value.decode() for name, value in (metadata.metadata or {}).items()}
        bloom = values.get(_BLOOM) or values.get(_BLOOM_LEGACY)
        return cls(bloom, values.get(_BLOOM_TYPE), values.get(_LEAST), values.get(_GREATEST))

    @classmethod
    def of_keys(cls, keys: pa.ChunkedArray, *, error_rate: float) -> Self:
        least, greatest = key_range(keys) or (None, None)
        return cls(build_bloom(keys, false_positive_rate=error_rate), DYNAMIC, least, greatest)

    def with_keys(self, keys: pa.Array) -> Self | None:
        """The footer of the same file with more keys in it; None if it must be made from all keys anew."""
        if self.bloom is None or self.least is None or self.greatest is None:
            return None
        if len(keys) == 0:
            return self
        bloom = extend_bloom(self.bloom, [keys], type_code=self.bloom_type)
        if bloom is None:
            return None
        ends = pa.chunked_array([keys, pa.array([self.least, self.greatest])])
        limits = key_range(ends)
        assert limits is not None, "two keys are there"
        return type(self)(bloom, DYNAMIC, *limits)

    def verdict(self, keys: pa.Array) -> Verdict:
        """Whether the file may hold one of the keys. A footer that says nothing rules nothing out."""
        if self.least is not None and self.greatest is not None:
            keys = keys_within(keys, self.least, self.greatest)
            if len(keys) == 0:
                return Verdict.OUT_OF_RANGE
        if self.bloom is not None and not decode_bloom(self.bloom, self.bloom_type).might_contain(keys).any():
            return Verdict.NOT_IN_BLOOM
        return Verdict.MAYBE

    def entries(self) -> dict[str, str]:
        """As the footer has them."""
        named = {
            _BLOOM: self.bloom,
            _BLOOM_TYPE: self.bloom_type,
            _LEAST: self.least,
            _GREATEST: self.greatest,
        }
        return {name: value for name, value in named.items() if value is not None}
