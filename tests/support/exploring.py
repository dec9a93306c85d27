"""Whether examples are to be new ones each time, as `make explore` has them: else a failure is one for everybody."""

from __future__ import annotations

import os

EXPLORING = "PENSTOCK_TEST_EXPLORE" in os.environ
