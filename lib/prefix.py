"""Count the tokens that two texts share from the start, which a cache need not read again."""


def common_prefix(a, b):
    """Return the number of tokens that two sequences share from the start."""
    n = min(len(a), len(b))
    # Usually one text continues the other. This test is much faster than the search below.
    if a[:n] == b[:n]:
        return n
    # The first n tokens differ somewhere, so there is a first difference.
    return next(i for i in range(n) if a[i] != b[i])
