"""The example of the README, run by whatever Python runs this: it prints what the README shows.

It needs nothing but the installed package, and works in the current folder.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n+^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(readme: str) -> None:
    found = _EXAMPLE.search(Path(readme).read_text(encoding="utf-8"))
    assert found is not None, "the README has no example"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[1], readme, "exec"), {})
    assert printed.getvalue() == found[2], printed.getvalue()

    import holdfast

    assert issubclass(holdfast.errors.TableNotFound, holdfast.errors.HoldfastError)
    sys.stdout.write(f"holdfast {holdfast.__version__} of {Path(holdfast.__file__).parent} runs the README\n")


if __name__ == "__main__":
    main(sys.argv[1])
