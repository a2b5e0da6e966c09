"""Keep the hidden states of the target's passes, for the heads of Medusa and EAGLE.

Adds to gpt2.py: the states after ln_f, each stored under the text up to the state's token. The
passes compute them anyway, so the heads' guesses need no extra pass of the target.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from lib.around import Around
from variants.shared.branches import texts_of_rows


@dataclass(eq=False)
class States(Around):
    """A model of sequences or trees, with the states of its passes since the last question."""

    state_of_text: dict = field(default_factory=dict)  # text: the state of its last token

    def __call__(self, ids, n_last=1):  # -> [n_last, n_vocab]
        """Return the model's logits for a text, or for all branches of a text."""
        states = self.model.hidden(ids, n_last)
        texts = map(tuple, texts_of_rows(ids, n_last))
        self.state_of_text |= zip(texts, states)
        return self.model.logits(states)

    def states_of(self, ids, n_last):  # -> [n_last, n_embd]
        """Return the states of the last tokens, without a pass if all of them are stored."""
        texts = [*map(tuple, texts_of_rows(ids, n_last))]
        if all(text in self.state_of_text for text in texts):
            # The text goes on from here, so no other state will be wanted.
            states = [self.state_of_text[text] for text in texts]
            self.state_of_text.clear()  # in place, because `beside` shares the dict
            self.state_of_text |= zip(texts, states)
            return np.stack(states)
        # The prompt, or a text unlike the last one, needs one more pass.
        return self.model.hidden(ids, n_last)

    def beside(self, model):
        """Return the States of another model, stored among this one's."""
        return replace(self, model=model)  # with the same dict

    def state_after(self, ids):  # -> [n_embd]
        """Return the state of the last token."""
        return self.states_of(ids, 1)[0]
