"""Options as they are given: which have an effect, which are ignored, which are refused and why.

Option strings exist only in this package. Everything else sees typed settings.
"""

import logging
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from holdfast.config.hudi_options import Answer, HudiOption, hudi_option, hudi_options
from holdfast.config.option import Area, Option
from holdfast.config.option_table import IGNORE_TUNING, OPTIONS, option_named, parse_settings, spellings
from holdfast.errors import InvalidOption, OptionsIgnored

log = logging.getLogger(__name__)

_EDITS_MAX = 2
"""Letters by which a misspelled name may differ from the right one; a swapped pair counts as two."""
_SEPARATORS = str.maketrans("", "", "._-")


@dataclass(slots=True)
class _Answers:
    """Options by what becomes of them."""

    effective: dict[str, str] = field(default_factory=dict)
    tuning: list[str] = field(default_factory=list)
    refused: dict[str, InvalidOption] = field(default_factory=dict)


def effective_options(options: Mapping[str, str] | None, areas: Iterable[Area]) -> dict[str, str]:
    """The options that have an effect on these areas.

    Those that only describe what happens anyway are left out, and so are those
    that tune Apache Hudi with its own default. Others that tune it are, too, with
    one warning, if `holdfast.ignore.tuning.options` asks for that. All others are
    `InvalidOption`, in one message.
    """
    given = {name: str(value) for name, value in (options or {}).items()}
    ignores = parse_settings(Area.SWITCH, given).get("ignores_tuning", False)
    given.pop(IGNORE_TUNING, None)
    answers = _sort(given, frozenset(areas))
    if not ignores:
        answers.refused |= {name: _refuse_tuning(name) for name in answers.tuning}
    if answers.refused:
        raise _join_refusals(answers.refused, tuning=() if ignores else answers.tuning)
    if answers.tuning:
        _warn_of(answers.tuning)
    return answers.effective


def _warn_of(names: Iterable[str]) -> None:
    ignored = ", ".join(sorted(names))
    log.info("options.ignored", extra={"options": ignored})
    warnings.warn(f"options that only tune Apache Hudi are ignored: {ignored}", OptionsIgnored, stacklevel=3)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that hardly differs from this one; None if there is none."""
    plain = _plain(name)
    misses = {
        each: _edits(plain, _plain(each)) for each in known if abs(len(each) - len(name)) <= _EDITS_MAX + 2
    }
    nearest = min(misses, key=lambda each: misses[each], default=None)
    return nearest if nearest is not None and misses[nearest] <= _EDITS_MAX else None


def _sort(given: Mapping[str, str], areas: frozenset[Area]) -> _Answers:
    answers = _Answers()
    for name, value in given.items():
        option = option_named(name)
        if option is not None and option.area in areas:
            answers.effective[_spelling(option, name)] = value
            continue
        if option is not None:
            answers.refused[name] = _refuse_area(option, name)
            continue
        known = hudi_option(name)
        if known is None:
            answers.refused[name] = _refuse_name(name, areas)
        elif known.accepts(value) or (known.answer is Answer.TUNING and known.is_default(value)):
            continue
        elif known.answer is Answer.TUNING:
            answers.tuning.append(name)
        else:
            answers.refused[name] = _refuse_value(known, name, value)
    return answers


def _spelling(option: Option, name: str) -> str:
    """The spelling of the table: Spark gives names in lower case."""
    return name if name in option.names else name.lower()


def _join_refusals(refused: Mapping[str, InvalidOption], *, tuning: Iterable[str]) -> InvalidOption:
    """One error for all of them: a job is corrected once."""
    if len(refused) == 1:
        return next(iter(refused.values()))
    problems = [
        f"{name}: {'; '.join(filter(None, (error.message, error.hint)))}"
        for name, error in refused.items()
        if name not in tuning
    ]
    if tuning:
        names = ", ".join(tuning)
        problems.append(f"{names}: only tune Apache Hudi; leave them out, or set {IGNORE_TUNING}=true")
    return InvalidOption(
        "options cannot be honoured", options=", ".join(refused), problems=" | ".join(problems)
    )


def _refuse_tuning(name: str) -> InvalidOption:
    return InvalidOption(
        "this option only tunes Apache Hudi and has no effect here",
        option=name,
        hint=f"leave it out, or set {IGNORE_TUNING}=true to ignore such options with a warning",
    )


def _refuse_value(known: HudiOption, name: str, value: str) -> InvalidOption:
    if not known.accepted:
        return InvalidOption("this option of Apache Hudi is not supported", option=name, hint=known.reason)
    accepted = " or ".join(text or "nothing" for text in known.accepted)
    return InvalidOption(
        "this value of the option is not supported",
        option=name,
        value=value,
        wanted=accepted,
        hint=known.reason,
    )


def _refuse_area(option: Option, name: str) -> InvalidOption:
    return InvalidOption(
        f"this option is for {option.area}, and is not taken here", option=name, hint="leave it out"
    )


def _refuse_name(name: str, areas: Iterable[Area]) -> InvalidOption:
    known = {*spellings(areas), *(each for option in OPTIONS for each in option.names), *hudi_options()}
    nearest = nearest_name(name, sorted(known))
    hint = f"did you mean {nearest}?" if nearest else "the options there are: docs/options.md"
    return InvalidOption("unknown option", option=name, hint=hint)


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)


def _edits(first: str, second: str) -> int:
    """Letters that only one of the texts has, or has at another place."""
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    return len(first) + len(second) - 2 * sum(block.size for block in blocks)
