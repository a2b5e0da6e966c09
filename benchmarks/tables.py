"""Write figures as Markdown."""


def table(head, rows):
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def number(value, form="{:.2f}"):
    """Return a formatted number; "-" for None."""
    return "-" if value is None else form.format(value)


def ranged(values, form="{:.2f}"):
    """Return "median (low - high)"."""
    low, median, high = (number(values[key], form) for key in ("low", "median", "high"))
    return f"{median} ({low} - {high})"


def about(figures):
    """Return a sentence on when and where some figures were measured (clock.machine)."""
    return (f"Measured on {figures['date']}: {figures['cores']} cores ({figures['machine']}), "
            f"matrix products by {figures['product']}, NumPy {figures['numpy']}, BLAS kernels for "
            f"{figures['blas_kernels']}.")


def scatter(speeds):
    """Return a sentence on how far apart the repeats of some spreads (clock.spread) lie."""
    widths = sorted(100 * (speed["high"] - speed["low"]) / speed["median"] for speed in speeds)
    return (f"The quartiles of the tokens per second lie {widths[len(widths) // 2]:.0f} % of the "
            f"median apart, at most {widths[-1]:.0f} %.")
