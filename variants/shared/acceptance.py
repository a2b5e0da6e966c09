"""Count how often guesses are accepted, for decoders that choose their guesses by it.

Adds to speculative.py: acceptance rates from finished rounds. A model's acceptance changes
along a text, so older rounds count less.
"""

from dataclasses import dataclass
from typing import Any

DECAY = 0.98  # a round's weight, relative to the next round's
START_COUNTS = (3.0, 4.0)  # accepted, tested: a rate of 0.75 before any round


@dataclass
class Acceptance:
    """Hold decaying counts: numbers, or arrays with an entry for each kind of guess."""

    accepted: Any
    tested: Any

    def fade(self):
        """Reduce the weight of all rounds so far; call this before counting a new round."""
        self.accepted = DECAY * self.accepted
        self.tested = DECAY * self.tested

    def rate(self):
        """Return the fraction of tested guesses that were accepted, for each kind of guess."""
        return self.accepted / self.tested
