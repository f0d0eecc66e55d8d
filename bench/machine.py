"""The machine and the versions a benchmark ran with."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("holdfast", "pyspark", "pyarrow", "numpy", "msgspec")


def machine_facts() -> dict[str, str | int]:
    facts: dict[str, str | int] = {
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_match(r'version "([^"]+)', _output(["java", "-version"])),
        "revision": _output(["git", "describe", "--always", "--dirty", "--abbrev=12"]).strip(),
    }
    return facts | {name: _version(name) for name in _PACKAGES}


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="latin-1") as file:
        return _first_match(r"model name\s*:\s*(.+)", file.read())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _output(command: Sequence[str]) -> str:
    """What the command says; nothing if it is not installed or fails."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout + said.stderr


def _first_match(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1].strip() if match else ""
