"""Draw family.svg: what each decoder changes in speculative decoding."""

from docs.pictures.svg import box, boxes, line, picture, rect, text

WIDTH, HEIGHT = 840, 424
FAMILIES = [  # what changes, name, decoders
    ("guess", "no draft model", ["lookup", "suffix", "jacobi", "lookahead"]),
    ("guess", "heads on the target", ["blockwise", "medusa", "markov", "eagle"]),
    ("guess", "a cheaper draft, or a K that adapts", ["skip", "staged", "assisted", "stopping"]),
    ("guess", "several guesses per position", ["tree", "traversal", "kseq"]),
    ("test", "a different lossless test", ["match", "coupled", "block"]),
    ("test", "a lossy test", ["lenient", "big_little", "cascade"])]


def draw(data, colour):
    """Return the picture: from left to right the root, what changes, the families."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             box(20, 190, 128, 44, "speculative", "strong", "bold blue"),
             box(196, 120, 108, 44, "the guess"), box(196, 306, 108, 44, "the test"),
             line(148, 212, 196, 142), line(148, 212, 196, 328)]
    for i, (changes, name, decoders) in enumerate(FAMILIES):
        y = 24 + 64 * i + (6 if changes == "test" else 0)
        parts += [line(304, 142 if changes == "guess" else 328, 350, y + 26),
                  rect(350, y, 466, 52, "track", rx=6), text(366, y + 21, name, "bold"),
                  text(366, y + 41, "  ".join(decoders), "mono small")]
    names = "; ".join(f"{name}: {', '.join(decoders)}" for _, name, decoders in FAMILIES)
    title = ("A tree from left to right. Its root is speculative; one branch changes the guess, "
             f"the other the test. Six boxes at its right: {names}.")
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour))
