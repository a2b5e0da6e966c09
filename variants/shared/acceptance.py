"""Count how often guesses are accepted, for decoders that choose their guesses by it.

Adds to speculative.py: acceptance rates from finished rounds. A model's acceptance changes along
a text, so older rounds count less.
"""

DECAY = 0.98  # multiplies a round's weight after every further round, for --K and --widths auto
START_COUNTS = (3.0, 4.0)  # accepted, tested: a rate of 0.75 before any round


class Acceptance:
    """Hold decaying counts of accepted and of tested guesses.

    Both are numbers, or arrays with an entry for each kind of guess. Without new guesses they
    approach `at_rest`, counts of accepted and of tested guesses.
    """

    def __init__(self, accepted, tested, decay=DECAY, at_rest=(0.0, 0.0)):
        self.accepted = accepted
        self.tested = tested
        self.decay = decay
        self.at_rest = at_rest

    def fade(self):
        """Reduce the weight of all rounds so far; call this before counting a new round."""
        accepted_at_rest, tested_at_rest = self.at_rest
        # Not in place: arrays that the caller gave are not changed.
        self.accepted = accepted_at_rest + self.decay * (self.accepted - accepted_at_rest)
        self.tested = tested_at_rest + self.decay * (self.tested - tested_at_rest)

    def rate(self):
        """Return the fraction of tested guesses that were accepted, for each kind of guess."""
        return self.accepted / self.tested
