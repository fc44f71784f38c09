# SPDX-License-Identifier: Apache-2.0
"""Makes the training example, and the ranks that these tests start, importable."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "examples")]
