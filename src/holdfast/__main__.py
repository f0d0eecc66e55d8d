"""`holdfast`, and `python -m holdfast`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        # Loaded here because whoever interrupts even this gets no traceback.
        from holdfast.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("holdfast: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
