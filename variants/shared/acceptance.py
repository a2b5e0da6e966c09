"""Count how often guesses are accepted, for decoders that choose their guesses by it.

Adds to speculative.py: acceptance rates from finished rounds. A model's acceptance changes
along a text, so older rounds count less.
"""

from dataclasses import dataclass
from typing import Any

DECAY = 0.98  # for --K auto and --widths auto: a round's weight, relative to the next round's
START_COUNTS = (3.0, 4.0)  # accepted, tested: a rate of 0.75 before any round


@dataclass
class Acceptance:
    """Hold decaying counts: numbers, or arrays with an entry for each kind of guess."""

    accepted: Any
    tested: Any
    decay: float = DECAY
    at_rest: tuple = (0.0, 0.0)  # the accepted and tested to which `fade` moves the counts

    def fade(self):
        """Reduce the weight of all rounds so far; call this before counting a new round."""
        accepted_at_rest, tested_at_rest = self.at_rest
        # The sums are new arrays, so that later additions do not change the caller's.
        self.accepted = accepted_at_rest + self.decay * (self.accepted - accepted_at_rest)
        self.tested = tested_at_rest + self.decay * (self.tested - tested_at_rest)

    def rate(self):
        """Return the fraction of tested guesses that were accepted, for each kind of guess."""
        return self.accepted / self.tested
