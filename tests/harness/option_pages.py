"""The tables of the pages on options and functions, made from the code's; as a program, it writes them.

A page has a pair of lines around each table, `<!-- options: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING

from harness.guides import ROOT
from holdfast.config.hudi_options import RELEASES, Answer, HudiOption, hudi_options
from holdfast.config.option import Area, Option
from holdfast.config.option_table import options_of
from holdfast.config.table import ARGUMENTS
from holdfast.push.queries.functions import functions

PAGES = ("docs/options.md", "docs/migrate.md", "docs/hudi-options.md", "docs/broker-sql.md")
_MARKED = re.compile(r"(<!-- options: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FEW = 2
_MANY = 100


def page_text(page: str) -> str:
    """The page with every table as the option table makes it."""

    def fill(marks: re.Match[str]) -> str:
        return f"{marks[1]}{_TABLES[marks[2]]()}\n{marks[3]}"

    return _MARKED.sub(fill, (ROOT / page).read_text())


def _area(area: Area) -> str:
    return _table(("option", "default", "meaning"), [_row(option) for option in options_of(area).values()])


def _created() -> str:
    of_table = options_of(Area.TABLE)
    rows = [_row(option) for name, option in of_table.items() if name not in ARGUMENTS]
    return _table(("property", "default", "meaning"), rows)


def _row(option: Option) -> tuple[str, ...]:
    return _names(option.names), option.shown or _default(option), option.meaning + _range(option)


def _range(option: Option) -> str:
    bounds = ", ".join(f"`{choice}`" for choice in option.choices)
    if option.least is not None and option.least > 0:
        bounds = f"at least {option.least}"
    if option.most is not None:
        bounds += f", at most {option.most}"
    return f"; {bounds}" if bounds else ""


def _default(option: Option) -> str:
    value = option.default
    if value in (None, "", (), MISSING):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return str(value) if isinstance(value, int) else f"`{value}`"


def _same() -> str:
    """Grouped by reason: what is accepted with these values only."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for option in _answered(Answer.SAME):
        if not option.accepts_all:
            groups.setdefault((option.reason, option.accepted), []).append(option.name)
    rows = [(_names(names), _values(accepted), reason) for (reason, accepted), names in groups.items()]
    return _table(("option", "accepted", "why no other"), sorted(rows))


def _idle() -> str:
    groups: dict[str, list[str]] = {}
    for option in _answered(Answer.SAME):
        if option.accepts_all:
            groups.setdefault(option.reason, []).append(option.name)
    rows = [(_prefixes(names), reason) for reason, names in groups.items()]
    return _table(("options", "accepted with any value, because"), sorted(rows))


def _unsupported() -> str:
    groups: dict[str, list[str]] = {}
    for option in _answered(Answer.UNSUPPORTED):
        groups.setdefault(option.reason, []).append(option.name)
    return _table(("option", "instead"), sorted((_names(names), reason) for reason, names in groups.items()))


def _counts() -> str:
    known = hudi_options().values()
    rows = [(answer.value, str(sum(option.answer is answer for option in known))) for answer in Answer]
    return _table(("answer", f"names of {' and '.join(RELEASES)}"), rows)


def _all() -> str:
    rows = [
        (f"`{option.name}`", _releases(option), option.answer.value, _values(option.accepted))
        for option in sorted(hudi_options().values(), key=lambda option: option.name)
    ]
    return _table(("option", "Hudi", "answer", "accepted"), rows)


def _aggregates() -> str:
    return _functions(is_aggregate=True)


def _plain_functions() -> str:
    return _functions(is_aggregate=False)


def _functions(*, is_aggregate: bool) -> str:
    """By how many arguments they take."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, function in sorted(functions().items()):
        if function.is_aggregate is is_aggregate:
            groups.setdefault((function.least, function.most), []).append(name)
    rows = [(_arguments(*bounds), _names(names)) for bounds, names in sorted(groups.items())]
    return _table(("arguments", "functions"), rows)


def _arguments(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most >= _MANY else f"{least} to {most}"


def _answered(answer: Answer) -> Iterable[HudiOption]:
    return (option for option in hudi_options().values() if option.answer is answer)


def _releases(option: HudiOption) -> str:
    known = zip(RELEASES, option.defaults, strict=True)
    return ", ".join(release for release, default in known if default is not None)


def _prefixes(names: list[str]) -> str:
    """Names, or how they begin where all of Hudi's that do so are meant, but the one that switches them."""
    shown: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        begins = (".".join(parts[:depth]) + "." for depth in range(2, len(parts)))
        begin = next((each for each in begins if _is_family(each, names)), None)
        shown[name if begin is None else f"{begin}*"] = None
    return _names(shown)


def _is_family(begin: str, names: list[str]) -> bool:
    meant = sum(name.startswith(begin) for name in names)
    others = sum(name.startswith(begin) for name in hudi_options()) - meant
    return meant > _FEW and others <= 1


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _values(values: Iterable[str]) -> str:
    return ", ".join("any" if value == "*" else f"`{value}`" if value else "nothing" for value in values)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


_TABLES: dict[str, Callable[[], str]] = {
    "switch": lambda: _area(Area.SWITCH),
    "write": lambda: _area(Area.WRITE),
    "lock": lambda: _area(Area.LOCK),
    "clean": lambda: _area(Area.CLEAN),
    "table": lambda: _area(Area.TABLE),
    "source": lambda: _area(Area.SOURCE),
    "read": lambda: _area(Area.READ),
    "created": _created,
    "same": _same,
    "idle": _idle,
    "unsupported": _unsupported,
    "counts": _counts,
    "aggregates": _aggregates,
    "functions": _plain_functions,
    "all": _all,
}


def main() -> None:
    for page in PAGES:
        (ROOT / page).write_text(page_text(page))


if __name__ == "__main__":
    main()
