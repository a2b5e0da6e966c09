"""Timor et al. (2025) Alg. 4: a draft with a vocabulary that is not the target's. Lossless.

Adds to gpt2.py: a model over the target's ids, made from a draft that has its own tokenizer.
Every model here is a function of the text, so no decoder changes:

    text so far     the target's ids as bytes, which the draft's tokenizer encodes again
    common token    its bytes are a token of both vocabularies; a special token is common by its
                    role (the end of a text) or by its name
    row             at the target's ids: the draft's probabilities of the common tokens, divided
                    by their sum; 0 elsewhere

Guesses are drawn from the same row that the test receives, so every decoder stays lossless,
whatever the tokenizers are. A bad match of the vocabularies only costs acceptance.

Subtle: the row must be divided by its sum. A row that is only cut is not the distribution of
the guesses, and biases the text. Here softmax divides the row, because the wrapper returns
logits.
"""

import math
from itertools import groupby

import numpy as np

from cache import check_ids
from variants.shared.branches import Branches, texts_of_rows

# A logit of probability 0: exp((IMPOSSIBLE - max) / T) is 0 for any temperature T below 1e35.
# The logit is finite, because sampling.warp refuses infinite logits.
IMPOSSIBLE = float(np.finfo(np.float32).min)


def meanings(encoder):
    """Return {token: meaning}: two tokens with the same meaning are common."""
    def meaning(token, symbol):
        if token == encoder.end_of_text:
            return None
        if symbol in encoder.special:
            return symbol
        return encoder.decode_bytes([token])

    return {token: meaning(token, symbol) for token, symbol in encoder.symbols.items()}


class CommonTokens:
    """Hold the common tokens of the draft's and the target's tokenizers; translate texts."""

    def __init__(self, draft_encoder, encoder):
        ours = meanings(encoder)
        theirs = meanings(draft_encoder)
        draft_token = {meaning: token for token, meaning in theirs.items()}
        # (our id, the draft's id) of each common token
        pairs = [(token, draft_token[meaning]) for token, meaning in ours.items()
                 if meaning in draft_token]
        if not pairs:
            raise ValueError("need a draft and a target with tokens in common, got none among "
                             f"{len(theirs)} and {len(ours)}; choose a different draft")
        self.ids, self.draft_ids = np.array(pairs).T  # ids[i] and draft_ids[i]: one token
        self.n_vocab = encoder.n_vocab  # ids may have holes
        self.n_draft_vocab = len(theirs)
        self.encode_bytes = draft_encoder.encode_bytes
        # What the draft reads of a text without bytes: any row is a distribution to guess from.
        self.start = draft_encoder.end_of_text
        if self.start is None:
            self.start = int(self.draft_ids[0])
        # {our token: its translation}: bytes, which are encoded again, or a special token of
        # the draft. A special token that the draft lacks becomes bytes, too: its name, or b""
        # (transformers), which the draft does not see.
        self.pieces = {}
        for token, meaning in ours.items():
            if meaning in draft_token and not isinstance(meaning, bytes):
                self.pieces[token] = draft_token[meaning]
            else:
                self.pieces[token] = encoder.decode_bytes([token])

    def __str__(self):
        n = len(self.ids)
        return (f"{n} tokens in common, {100 * n / self.n_draft_vocab:.0f} % of the draft's "
                f"and {100 * n / self.n_vocab:.0f} % of the target's")

    def draft_text(self, ids):
        """Return the draft's ids, one or more, of a text in the target's ids."""
        check_ids(ids, self.n_vocab)
        # The bytes of neighbouring tokens are encoded together, because a token of the draft
        # may span several of ours. A special token of the draft separates such runs.
        text = []
        pieces = (self.pieces.get(token, b"") for token in ids)  # a hole has no bytes
        for is_bytes, run in groupby(pieces, lambda piece: isinstance(piece, bytes)):
            if is_bytes:
                text += self.encode_bytes(b"".join(run))
            else:
                text += run
        return text or [self.start]


class TokenLevelIntersection:
    """Make a draft over the target's ids, with probability for common tokens only.

    `draft` is a model of logits over its own ids; `common` are the CommonTokens. Each row is a
    separate call of the draft, because a new token may merge with the tokens before it when the
    text is encoded again. The draft's cache reuses what two such texts share.
    """

    n_ctx = math.inf  # any length: `read` drops the start of a text that the draft cannot hold

    def __init__(self, draft, common):
        self.draft = draft
        self.common = common
        self.n_vocab = common.n_vocab

    def fresh(self):
        """Return a model over the same weights that has read nothing."""
        return type(self)(self.draft.fresh(), self.common)

    def __call__(self, ids, n_last=1):  # -> [n_last, n_vocab]
        """Return finite logits over the target's ids; `ids` may be a text with a tree."""
        # A text with a tree has a row for itself and one per node; a text has one per token.
        n_rows = 1 + len(ids.tree) if isinstance(ids, Branches) else len(ids)
        if not 1 <= n_last <= n_rows:
            raise ValueError(f"need 1 <= n_last <= {n_rows} rows, got n_last = {n_last}")
        texts = texts_of_rows(ids, n_last)
        rows = np.concatenate([self.draft(self.read(text)) for text in texts])
        # Tokens that the draft lacks keep the probability 0.
        logits = np.full((n_last, self.n_vocab), IMPOSSIBLE, rows.dtype)
        logits[:, self.common.ids] = rows[:, self.common.draft_ids]
        return logits

    def read(self, ids):
        """Return the draft's ids of a text, without the start of a text that is too long."""
        # Subtle: a multiple of half a context is dropped, so it is the same for many calls in a
        # row, between which the draft's cache can be reused.
        text = self.common.draft_text(ids)
        half = max(1, self.draft.n_ctx // 2)
        n_over = max(0, len(text) - self.draft.n_ctx)
        n_dropped = math.ceil(n_over / half) * half  # n_over, rounded up to a multiple
        return text[n_dropped:]
