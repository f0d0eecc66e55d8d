"""Makes the suite importable: it is run from the repository's root and belongs to no package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
