"""What a panel of a comparison is: like one of a run, over several runs at once.

Must not import fastapi. Invariant: as of `panels.base`; and the runs are drawn in the order of the comparison, the
baseline's line first and thus beneath the others.
"""

from __future__ import annotations

from typing import Protocol

from halfscope_server.compare.comparison import Comparison
from halfscope_server.panels.base import Drawn


class ComparePanel(Drawn[Comparison], Protocol):
    """One chart of the page of a comparison; its section is `quality`, `cost`, `stability` or `layer` (the chosen
    layer), and the ends of a window count what the runs are aligned by."""
