"""Whether Holdfast knows every option of Hudi's bundles, by name, other names and default.

It compares `hudi_options.tsv` with what the bundles themselves declare, and
says what is missing, what is gone and what is different. What an option is
answered with is for a person to decide, with care.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.config.hudi_options import RELEASES, HudiOption, hudi_options
from interop.lines import LINES, ROOT, CannotBeHad, Line, fetch

_PROGRAM = Path(__file__).with_name("ConfigProperties.java")
_FILES = frozenset({"hoodie.properties", "hoodie.properties.backup", "hoodie.properties.updated"})
"""Constants that look like options and name files."""
_SECONDS = 300
_EMPTY = '""'

Declared = dict[str, tuple[frozenset[str], str]]
"""Option → its other names, and its default as the file spells it."""


def main() -> int:
    try:
        lines = dict(zip(RELEASES, LINES.values(), strict=True))
        for line in lines.values():
            fetch(line)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    problems = [
        f"Hudi {release}: {problem}"
        for index, (release, line) in enumerate(lines.items())
        for problem in _differences(_declared(line), index)
    ]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    sys.stdout.write(f"{len(hudi_options())} options are known, {len(problems)} differ from the bundles\n")
    return 1 if problems else 0


def _declared(line: Line) -> Declared:
    """What the bundle declares."""
    spark = next((ROOT / ".venvs" / line.environment).glob("lib/python*/site-packages/pyspark/jars"))
    program = ["java", "-cp", f"{line.jar}:{spark}/*", str(_PROGRAM), str(line.jar)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=_SECONDS, check=True)
    found: Declared = {}
    constants = set()
    for text in ran.stdout.splitlines():
        kind, name, *cells = text.split("\t")
        if kind == "constant":
            constants.add(name)
        else:
            default = (cells[1] or _EMPTY) if len(cells) > 1 else ""
            found[name] = (frozenset(cells[0].split()), default)
    others = {other for alternatives, _ in found.values() for other in alternatives}
    begins = {name for name in constants if any(known.startswith(f"{name}.") for known in found)}
    return {name: (frozenset(), "") for name in (constants | others) - begins - _FILES} | found


def _differences(declared: Declared, index: int) -> list[str]:
    known = {name: option for name, option in hudi_options().items() if option.defaults[index] is not None}
    return [
        *(f"{name} is not known" for name in sorted(declared.keys() - known.keys())),
        *(f"{name} is not declared" for name in sorted(known.keys() - declared.keys())),
        *(text for name in sorted(known.keys() & declared.keys())
          if (text := _difference(known[name], *declared[name], index=index))),
    ]  # fmt: skip


def _difference(option: HudiOption, others: frozenset[str], default: str, *, index: int) -> str:
    if not others <= set(option.alternatives):
        return f"{option.name} is also called {', '.join(others)}"
    if option.defaults[index] != default:
        return f"{option.name} has the default {default}, not {option.defaults[index]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
