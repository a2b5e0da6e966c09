"""A target that remembers its hidden states, which the heads of two papers start from. Lossless.

What it adds to gpt2.py: the states after ln_f of the last pass, each by the text that it ends. A
round's pass has them anyway, so the guesses of medusa.py and eagle.py cost the target nothing.
"""

import numpy as np


class States:
    """A model over sequences or trees, with the states of its last pass."""

    def __init__(self, model):
        self.model, self.known = model, {}

    def __call__(self, ids, n_last):  # -> [n_last, n_vocab]
        """Logits, as the model's own, of a text or of all branches of one."""
        states = self.model.hidden(ids, n_last)
        texts = ids.texts() if hasattr(ids, "texts") else prefixes(ids, n_last)
        self.known = dict(zip(map(tuple, texts), states))
        return self.model.logits(states)

    def states_of(self, ids, n_last):  # -> [n_last, n_embd]
        """The states at the last tokens: of the last pass if it has them all, else of one more."""
        texts = [tuple(text) for text in prefixes(ids, n_last)]
        if all(text in self.known for text in texts):
            return np.stack([self.known[text] for text in texts])
        return self.model.hidden(ids, n_last)

    def state_after(self, ids):  # -> [n_embd]
        """The state at the last token."""
        return self.states_of(ids, 1)[0]


def prefixes(ids, n_last):
    """The last n_last prefixes of a text, the text itself last."""
    return [ids[:n] for n in range(len(ids) - n_last + 1, len(ids) + 1)]
