"""Check the arguments of a formula."""

import numpy as np


def need(holds, what, got):
    """Raise the ValueError of a front door unless `holds`."""
    if not holds:
        raise ValueError(f"need {what}, got {got}")


def need_positive(**numbers):
    """Raise unless each of them is positive and finite."""
    for name, number in numbers.items():
        need(0 < number < np.inf, f"0 < {name} < inf", number)


def whole(count, least):
    """Return True if `count` is a whole number and at least `least` (a NaN is not)."""
    return count >= least and count % 1 == 0
