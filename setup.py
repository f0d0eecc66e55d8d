"""The long description: README.md with links that work anywhere. All else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(\]\(|<img[^>]* src=\")(?!https?://|#)([^)\s\"]+)")
_PICTURES = (".png", ".svg")


def long_description() -> str:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    home = project["urls"]["Homepage"]

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[2].endswith(_PICTURES) else "blob"
        return f"{found[1]}{home}/{kind}/main/{found[2]}"

    return _LINK.sub(absolute, Path("README.md").read_text(encoding="utf-8"))


setup(long_description=long_description(), long_description_content_type="text/markdown")
