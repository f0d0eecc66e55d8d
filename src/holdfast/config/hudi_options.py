"""Apache Hudi's options, by name: what each of them is answered with.

`hudi_options.tsv` has a row for every option that Hudi 0.15 or 1.2 knows, made
from their bundles; `make hudi-options` compares the two. Families are names of
parts of Hudi that are not in its bundle for Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources

from holdfast.config.option_reasons import REASONS

_FILE = "hudi_options.tsv"
_ANY = "*"
_EMPTY = '""'
_UNKNOWN = "-"
RELEASES = ("0.15", "1.2")


class Answer(StrEnum):
    SUPPORTED = "supported"
    """It has its effect; the option table says which."""
    SAME = "same"
    """Accepted with the values that describe what happens here anyway."""
    TUNING = "tuning"
    """It changes how Hudi works, never which rows are read: refused, or ignored if that is asked for.

    With Hudi's own default it tunes nothing, and is accepted.
    """
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class HudiOption:
    name: str
    alternatives: tuple[str, ...] = ()
    """Older names that Hudi takes for it."""
    defaults: tuple[str | None, ...] = ()
    """By release; None if that release does not know the name."""
    answer: Answer
    accepted: tuple[str, ...] = ()
    """The values that are as things are here; `*` is every value."""
    reason: str = ""

    def accepts(self, value: str) -> bool:
        """Whether the value describes what happens here anyway."""
        return _ANY in self.accepted or value.strip().lower() in (each.lower() for each in self.accepted)

    def is_default(self, value: str) -> bool:
        """Whether Hudi, in one of the releases, does the same without the option."""
        known = {"" if text == _EMPTY else text.lower() for text in self.defaults if text}
        return value.strip().lower() in known

    @property
    def accepts_all(self) -> bool:
        return _ANY in self.accepted


_FAMILIES = {
    "hoodie.streamer.": "streamer",
    "hoodie.deltastreamer.": "streamer",
    "hoodie.write.lock.dynamodb.": "lock_providers",
    "hoodie.aws.": "cloud",
    "hoodie.gcp.": "cloud",
    "hoodie.kafka.": "streamer",
}


def hudi_option(name: str) -> HudiOption | None:
    """What is known of a name; None if it is none of Hudi's."""
    known = hudi_options()
    option = known.get(name) or known.get(_exact_names().get(name.lower(), ""))
    if option is not None:
        return option
    family = next((prefix for prefix in _FAMILIES if name.startswith(prefix)), None)
    if family is None:
        return None
    return HudiOption(name=name, answer=Answer.UNSUPPORTED, reason=REASONS[_FAMILIES[family]])


@cache
def hudi_options() -> Mapping[str, HudiOption]:
    """Every option of the releases, by name."""
    lines = resources.files(__package__).joinpath(_FILE).read_text("utf-8").splitlines()
    rows = (_option(line.split("\t")) for line in lines[1:])
    return {option.name: option for option in rows}


@cache
def _exact_names() -> dict[str, str]:
    """Spark gives names in lower case."""
    return {name.lower(): name for name in hudi_options()}


def _option(cells: list[str]) -> HudiOption:
    name, alternatives, *defaults, answer, accepted, reason = cells
    return HudiOption(
        name=name,
        alternatives=tuple(alternatives.split()),
        defaults=tuple(None if text == _UNKNOWN else text for text in defaults),
        answer=Answer(answer),
        accepted=tuple("" if text == _EMPTY else text for text in accepted.split("|") if text),
        reason=REASONS[reason] if reason else "",
    )
