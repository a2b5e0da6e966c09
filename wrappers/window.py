"""Run any decoder on texts longer than the context, within a window.

The result is lossless if the decoder is.
"""


def window(x, n_prompt, n_ctx):
    """Return the tokens of x that the models read: all of them until they fill the context.

    Then the window shrinks to the last n_ctx // 2 tokens, and grows until it fills the context
    again, and so on. A prompt of n_prompt >= n_ctx tokens starts with its last n_ctx // 2.

    Subtle: GPT-2 learned a vector for each position, so when the window moves, every token in
    it must be read again. A window that moved at every token would cost a full pass per token.

    >>> [window([0, 1, 2, 3, 4, 5, 6, 7][:n], 1, 4) for n in (3, 4, 5, 6)]
    [[0, 1, 2], [2, 3], [2, 3, 4], [4, 5]]
    """
    half = n_ctx // 2
    first_move = max(n_prompt, n_ctx)  # the length of x at which the window first moves
    if len(x) < first_move:
        return x
    n_between_moves = n_ctx - half  # a moved window has `half` tokens, a full one n_ctx
    n_since = (len(x) - first_move) % n_between_moves  # new tokens since the last move
    start = len(x) - (half + n_since)
    return x[start:]


def windowed(step, n_prompt, n_ctx):
    """Return `step` restricted to a window of the text, so the text may outgrow the context.

    If `step` is lossless, the result is lossless for a target that sees the window only; a
    repetition penalty, too, sees the window only. A round ends before the window moves, so all
    rows of a round are computed from the same window.
    """
    if n_ctx < 2:
        raise ValueError(f"need n_ctx >= 2 for a window that moves, got {n_ctx}")

    def windowed_step(x, n_left, rng):
        seen = window(x, n_prompt, n_ctx)
        # After this many more tokens the window is full, and moves.
        n_until_move = n_ctx - len(seen)
        return step(seen, min(n_left, n_until_move), rng)

    return windowed_step
