"""Run any decoder on texts longer than the context, within a window. Lossless if the decoder is."""


def window(x, n_prompt, n_ctx):
    """Return the tokens of x that the models read: all of them until they fill the context.

    Then the window moves to the last n_ctx // 2 tokens, and grows until it fills the context
    again, and so on. A prompt of n_prompt >= n_ctx tokens starts with its last n_ctx // 2.

    Subtle: GPT-2 learned a vector for each position, so when the window moves, every token in
    it must be read again. A window that moves token by token would cost a full pass for each.

    >>> [window([0, 1, 2, 3, 4, 5, 6, 7][:n], 1, 4) for n in (3, 4, 5, 6)]
    [[0, 1, 2], [2, 3], [2, 3, 4], [4, 5]]
    """
    half = n_ctx // 2
    full = max(n_prompt, n_ctx)  # the length at which the window first moves
    if len(x) < full:
        return x
    n_since = (len(x) - full) % (n_ctx - half)  # tokens since the window moved last
    return x[len(x) - half - n_since :]


def windowed(step, n_prompt, n_ctx):
    """Return `step` restricted to a window of the text, which may then outgrow the context.

    Lossless if `step` is, for the target (and repetition penalty) restricted to the window: no
    round reaches beyond one window, so all rows of a round depend on the same tokens.
    """
    if n_ctx < 2:
        raise ValueError(f"need n_ctx >= 2 for a window that moves, got {n_ctx}")

    def windowed_step(x, n_left, rng):
        seen = window(x, n_prompt, n_ctx)
        return step(seen, min(n_left, n_ctx - len(seen)), rng)

    return windowed_step
