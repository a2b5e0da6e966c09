"""Tell how far two texts are the same: what a cache of one text may keep for the other."""


def common_prefix(a, b):
    """Return the number of tokens that two sequences share from the start."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:  # the usual case, and much faster than the search below
        return n
    return next(i for i in range(n) if a[i] != b[i])
