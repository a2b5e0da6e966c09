"""Keep the hidden states of the target's last pass, for the heads of Medusa and EAGLE.

Adds to gpt2.py: the states after ln_f, each stored under the text that it ends. A round's pass
computes them anyway, so the guesses of medusa.py and eagle.py cost the target nothing.
"""

import numpy as np


class States:
    """A model over sequences or trees, with the states of its last pass."""

    def __init__(self, model):
        self.model = model
        self.known: dict[tuple, np.ndarray] = {}  # text: the state at its end

    def __call__(self, ids, n_last):  # -> [n_last, n_vocab]
        """Return the model's logits for a text, or for all branches of one."""
        states = self.model.hidden(ids, n_last)
        texts = ids.texts() if hasattr(ids, "texts") else prefixes(ids, n_last)
        self.known = dict(zip(map(tuple, texts), states))
        return self.model.logits(states)

    def states_of(self, ids, n_last):  # -> [n_last, n_embd]
        """Return the states at the last tokens, from the last pass if it has all of them."""
        texts = [tuple(text) for text in prefixes(ids, n_last)]
        if all(text in self.known for text in texts):
            return np.stack([self.known[text] for text in texts])
        return self.model.hidden(ids, n_last)

    def state_after(self, ids):  # -> [n_embd]
        """Return the state at the last token."""
        return self.states_of(ids, 1)[0]


def prefixes(ids, n_last):
    """Return the last n_last prefixes of a text, the text itself last."""
    return [ids[:n] for n in range(len(ids) - n_last + 1, len(ids) + 1)]
