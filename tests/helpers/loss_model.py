"""What must have become of every record, said without any of the code that is to see to it.

Knows journals by name, records by number and place, and what was done to them: written, copied, acknowledged, given up
by a server that went back in time. Must not import the agent or the server. Invariant: a record may be missing only
for a reason that somebody is told of, and twice only where nobody could have known better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Journal:
    """What one journal was promised to hold."""

    written: dict[int, int] = field(default_factory=dict)
    """Seq to number; what came from heads and gaps has none."""
    acked: int = 0
    """Everything before it was acknowledged."""


class LossModel:
    """Every record is in the database exactly once, but for what is excused."""

    def __init__(self) -> None:
        self.journals: dict[str, Journal] = {}
        self.droppable: set[int] = set()
        """Numbers of points, which a quota may take before they are acknowledged; events never."""
        self.forgotten: set[int] = set()
        """Acknowledged by a server that then went back in time; nothing is there where the journal let go of them."""
        self.shared: set[int] = set()
        """Were not known to be acknowledged when their journal was copied: either copy may bring them."""

    def begin(self, name: str) -> None:
        self.journals[name] = Journal()

    def write(self, name: str, seq: int, number: int, *, droppable: bool) -> None:
        self.journals[name].written[seq] = number
        if droppable:
            self.droppable.add(number)

    def acknowledge(self, name: str, next_seq: int) -> None:
        self.journals[name].acked = max(self.journals[name].acked, next_seq)

    def copy(self, name: str, new: str) -> None:
        original = self.journals[name]
        self.shared |= {number for seq, number in original.written.items() if seq >= original.acked}
        self.journals[new] = Journal(dict(original.written), original.acked)

    def go_back(self) -> None:
        """The database was replaced by an older one of itself."""
        for journal in self.journals.values():
            self.forgotten |= {number for seq, number in journal.written.items() if seq < journal.acked}

    def faults(
        self, stored: Mapping[str, Iterable[int]], held: Mapping[str, Collection[int]], num_told: int
    ) -> list[str]:
        """What is wrong in the end; empty when nothing is.

        Args:
            stored: stream to the numbers that the database holds of it.
            held: journal to the numbers that it still holds.
            num_told: how many seqs the database has been told are lost.
        """
        found: list[str] = []
        counts: Counter[int] = Counter()
        for stream, numbers in stored.items():
            own = Counter(numbers)
            doubled = {number for number, count in own.items() if count > 1} - self.shared
            found += [f"{number} is {own[number]} times in {stream}" for number in doubled]
            counts.update(own.keys())
        known = {number for journal in self.journals.values() for number in journal.written.values()}
        found += [f"{number} was never written" for number in counts.keys() - known]
        found += [f"{n} is in {c} streams" for n, c in counts.items() if c > 1 and n not in self.shared]
        missing = known - counts.keys()
        still_there = {number for numbers in held.values() for number in numbers}
        found += [f"{number} is missing, and its journal has it" for number in missing & still_there]
        excused = self.droppable | self.forgotten
        found += [f"{number} is missing without a reason" for number in missing - still_there - excused]
        if len(missing) > num_told:
            found.append(f"{len(missing)} are missing and {num_told} told of: {sorted(missing)}")
        return found
