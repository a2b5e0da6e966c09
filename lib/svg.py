"""Write SVG as text: elements, lines of text, rectangles and straight lines."""

from xml.sax.saxutils import escape, quoteattr


def element(name, content="", **attributes):
    """Return <name ...>content</name>; class_ means class, and font_size means font-size."""
    # `class` is a word of Python, and a name in Python has no hyphen.
    shown = {key.rstrip("_").replace("_", "-"): short_number(value)
             for key, value in attributes.items() if value is not None}
    assignments = [f"{key}={quoteattr(value)}" for key, value in shown.items()]
    head = " ".join([name, *assignments])
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def short_number(value):
    """Return a float as text with at most two decimals, and any other value as str does."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")  # 2.50 -> 2.5, 2.00 -> 2


def text(x, y, string, class_=None, **attributes):
    """Return a line of text that starts at x; a text_anchor puts its middle or its end at x."""
    return element("text", escape(string), x=x, y=y, class_=class_, **attributes)


def rect(x, y, width, height, class_=None, **attributes):
    """Return a rectangle; rx is the radius of its corners."""
    return element("rect", x=x, y=y, width=width, height=height, class_=class_, **attributes)


def line(x1, y1, x2, y2, class_="rule", **attributes):
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)
