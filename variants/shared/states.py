"""Keep the hidden states of the target's last pass, for the heads of Medusa and EAGLE.

Adds to gpt2.py: the states after ln_f of the last pass, each stored under the text up to the
state's token. The pass computes the states anyway, so the guesses of medusa.py and eagle.py
need no extra pass of the target.
"""

import numpy as np

from variants.shared.branches import texts_of_rows


class States:
    """A model over sequences or trees, with the states of its last pass."""

    def __init__(self, model):
        self.model = model
        self.state_of_text: dict[tuple, np.ndarray] = {}  # text: the state of its last token

    def __call__(self, ids, n_last):  # -> [n_last, n_vocab]
        """Return the model's logits for a text, or for all branches of a text."""
        states = self.model.hidden(ids, n_last)
        texts = map(tuple, texts_of_rows(ids, n_last))
        self.state_of_text = dict(zip(texts, states))
        return self.model.logits(states)

    def states_of(self, ids, n_last):  # -> [n_last, n_embd]
        """Return the states of the last tokens, from the last pass if it has all of them."""
        texts = [tuple(text) for text in texts_of_rows(ids, n_last)]
        if all(text in self.state_of_text for text in texts):
            return np.stack([self.state_of_text[text] for text in texts])
        # The prompt, or a text unlike the last one, needs one more pass.
        return self.model.hidden(ids, n_last)

    def state_after(self, ids):  # -> [n_embd]
        """Return the state of the last token."""
        return self.states_of(ids, 1)[0]
