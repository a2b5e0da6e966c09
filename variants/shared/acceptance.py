"""Count how often guesses are accepted, for decoders that choose their guesses by it.

Adds to speculative.py: acceptance rates from finished rounds. A model's acceptance changes
along a text, so older rounds count less.
"""

# For --K auto and --widths auto: after every further round, a round's weight is multiplied by
# this.
DECAY = 0.98
START_COUNTS = (3.0, 4.0)  # accepted, tested: a rate of 0.75 before any round


class Acceptance:
    """Hold decaying counts of accepted and of tested guesses.

    The counts are numbers, or arrays with an entry for each kind of guess. `at_rest` is a pair
    of such counts, accepted and tested. While no guesses are added, `fade` moves the counts
    towards `at_rest`.
    """

    def __init__(self, accepted, tested, decay=DECAY, at_rest=(0.0, 0.0)):
        self.accepted = accepted
        self.tested = tested
        self.decay = decay
        self.at_rest = at_rest

    def fade(self):
        """Reduce the weight of all rounds so far; call this before counting a new round."""
        accepted_at_rest, tested_at_rest = self.at_rest
        # These sums are new arrays. So later additions do not change the caller's arrays.
        self.accepted = accepted_at_rest + self.decay * (self.accepted - accepted_at_rest)
        self.tested = tested_at_rest + self.decay * (self.tested - tested_at_rest)

    def rate(self):
        """Return the fraction of tested guesses that were accepted, for each kind of guess."""
        return self.accepted / self.tested
