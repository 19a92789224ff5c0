"""The versions of Numba that the compiled engine has been tested with.

The engine uses compiler classes of Numba that are not part of its stable interface, so a new release can break it. Versions below
`OLDEST` are refused, versions above `NEWEST` cause a warning, and a version that lacks one of these classes is refused.
`pyproject.toml` states the same bounds.
"""

from __future__ import annotations

import re
import warnings

from queuewise.errors import QueuewiseError

OLDEST, NEWEST = (0, 66), (0, 68)  # (major, minor); with 0.60 to 0.65 the engine does not compile
REQUIREMENT = f"numba>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
TESTED = f"tested: {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


class NumbaVersionError(QueuewiseError):
    """The installed Numba cannot compile the engine."""

    exit_code = 2


def incompatible_numba(version: str) -> NumbaVersionError:
    return NumbaVersionError(f"Numba {version} cannot compile the engine ({TESTED})", hint=f"pip install '{REQUIREMENT}'")


def check_numba(version: str) -> None:
    """Raise for a version that is too old, and warn about one that has not been tested."""
    found = re.match(r"(\d+)\.(\d+)", version)
    release = (int(found[1]), int(found[2])) if found else NEWEST
    if release < OLDEST:
        raise incompatible_numba(version)
    if release > NEWEST:
        text = f"Numba {version} has not been tested with Queuewise ({TESTED}); if something fails: pip install '{REQUIREMENT}'"
        warnings.warn(text, stacklevel=2)
