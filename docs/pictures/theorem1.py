"""theorem1.svg: both distributions at one position of a recorded round, one column a token.

    accepted    min(p_draft, p_target), what both give it: green
    rejected    p_draft - accepted, the draft's surplus: red
    resampled   p_target - accepted, the target's surplus: blue

Green and red are the draft, green and blue are the target: that is Theorem 1 (docs/theorem1.md).
"""

from docs.pictures.svg import element, line, mono, picture, rect, text

WIDTH, HEIGHT = 840, 330
LEFT, FLOOR, TALL = 84, 246, 186  # of the columns: first edge, lower end, height of the tallest
STEP, BAR = 78, 44  # from column to column, width of a column
RIGHT = 590  # where the words begin


def columns(position):
    """[(name, accepted, resampled, rejected)]; all other tokens, added up, are the last."""
    shown = [(name.strip(), min(draft, target), max(target - draft, 0), max(draft - target, 0))
             for name, draft, target in position["tokens"]]
    others = position["others"]
    return shown + [("others", others["accepted"], others["resampled"], others["rejected"])]


def column(x, name, parts, scale):
    """The bar of one token: green, then what only one of the two gives it."""
    accepted, resampled, rejected = (part * scale for part in parts)
    both = resampled > 0 and rejected > 0  # of the others only: side by side
    width = BAR / 2 if both else BAR
    yield rect(x, FLOOR - accepted, BAR, accepted, "green_bar")
    if resampled:
        yield rect(x, FLOOR - accepted - resampled, width, resampled, "blue_bar")
    if rejected:
        start = x + BAR - width
        yield rect(start, FLOOR - accepted - rejected, width, rejected, "red_bar")
        yield rect(start, FLOOR - accepted - rejected, width, rejected, fill="url(#struck)")
    draw_name = text if name == "others" else mono
    middle = x + BAR / 2
    yield draw_name(middle, FLOOR + 22, name, class_="muted" if name == "others" else "",
                    text_anchor="middle")
    draft, target = parts[0] + parts[2], parts[0] + parts[1]
    yield text(middle, FLOOR + 45, f"{draft:.2f}", "small", text_anchor="middle")
    yield text(middle, FLOOR + 65, f"{target:.2f}", "small", text_anchor="middle")


def levels(draft, target):
    """What the two edges of the first column are, to its left; heights in pixels."""
    for name, height in (("draft", draft), ("target", target)):
        yield text(LEFT - 16, FLOOR - height + 4, name, "small muted", text_anchor="end")
        yield line(LEFT - 11, FLOOR - height, LEFT - 3, FLOOR - height, "arrow")


def arrow(x1, y1, x2, y2):
    """From the largest red part to the largest blue one."""
    top = min(y1, y2) - 6
    path = f"M{x1:.1f} {y1:.1f}C{x1 + 40:.1f} {top:.1f} {x2:.1f} {top - 4:.1f} {x2:.1f} {y2:.1f}"
    head = f"M{x2 - 5:.1f} {y2 - 8:.1f}L{x2:.1f} {y2:.1f}L{x2 + 5:.1f} {y2 - 8:.1f}"
    return element("path", d=path + head, class_="arrow")


def words(total):
    """The proof beside the picture."""
    accepted, moved = (f"{100 * part:.0f} %" for part in total[:2])
    yield text(RIGHT, 62, "Draw a token from the draft.", "bold")
    rows = [("green_bar", "accepted", accepted, "the part that both models give"),
            ("red_bar", "rejected", moved, "where the draft gives too much"),
            ("blue_bar", "resampled", moved, "instead, from where it gives too little")]
    for i, (class_, name, share, why) in enumerate(rows):
        y = 96 + 44 * i
        yield rect(RIGHT, y - 12, 14, 14, class_, rx=2)
        if name == "rejected":
            yield rect(RIGHT, y - 12, 14, 14, fill="url(#struck)", rx=2)
        yield text(RIGHT + 24, y, name, "bold")
        yield text(RIGHT + 230, y, share, text_anchor="end")
        yield text(RIGHT + 24, y + 18, why, "small muted")
    yield line(RIGHT, 222, RIGHT + 230, 222)
    yield text(RIGHT, 248, "green + red = the draft")
    yield text(RIGHT, 272, "green + blue = the target, exactly", "bold")
    yield text(RIGHT, 300, "That is Theorem 1.", "muted")


def draw(data, colour):
    """The picture of the position at which a recorded round rejected a guess."""
    shown = columns(data["position"])
    scale = TALL / max(a + max(b, c) for _, a, b, c in shown)
    total = [sum(parts) for parts in list(zip(*shown))[1:]]
    kept = "".join(token["text"] for token in data["ids"] if token["origin"] == "kept")
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             element("text", "the next token after " + element(
                 "tspan", f"\u2026{kept}", class_="mono ink", font_size=13), x=24, y=32,
                 class_="muted small"),
             line(LEFT - 12, FLOOR, LEFT + STEP * len(shown) - 20, FLOOR),
             text(24, FLOOR + 45, "draft", "small muted"),
             text(24, FLOOR + 65, "target", "small muted")]
    for i, (name, *shares) in enumerate(shown):
        parts += column(LEFT + STEP * i, name, shares, scale)
    _, accepted, resampled, rejected = shown[0]
    parts += levels(scale * (accepted + rejected), scale * (accepted + resampled))
    red, blue = (max(range(len(shown)), key=lambda i, part=part: shown[i][part])
                 for part in (3, 2))
    top = lambda i: FLOOR - scale * (shown[i][1] + max(shown[i][2:]))
    middle = LEFT + BAR / 2
    parts.append(arrow(middle + STEP * red + BAR / 2 + 5, top(red) + 0.3 * scale * shown[red][3],
                       middle + STEP * blue, top(blue) - 5))
    title = ("Bars of two distributions over the next token. Green, what both give it, is accepted "
             "from the draft; red, the draft's surplus, is rejected; blue, the target's surplus, "
             "is resampled from. Green and blue together are the target's distribution.")
    hatch = element("pattern", line(0, 0, 0, 6, "hatch"), id="struck", width=6, height=6,
                    patternUnits="userSpaceOnUse", patternTransform="rotate(45)")
    parts.insert(0, element("defs", hatch))
    style = (f".hatch{{stroke:{colour['panel']};stroke-width:2.5;stroke-opacity:.6}}"
             f".arrow{{fill:none;stroke:{colour['muted']};stroke-width:1.5}}")
    return picture(WIDTH, HEIGHT, title, [*parts, *words(total)], colour, style)
