"""Write SVG as text: elements, lines of text, rectangles and straight lines."""

from xml.sax.saxutils import escape, quoteattr


def element(name, content="", **attributes):
    """Return <name ...>content</name>; class_ is class, font_size is font-size."""
    shown = {key.rstrip("_").replace("_", "-"): short_number(value)
             for key, value in attributes.items() if value is not None}
    head = " ".join([name, *(f"{key}={quoteattr(value)}" for key, value in shown.items())])
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def short_number(value):
    """Return a float with at most two decimals, everything else as it is."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(x, y, string, class_=None, **attributes):
    """Return a line of sans-serif text; x is its start unless text_anchor is given."""
    return element("text", escape(string), x=x, y=y, class_=class_, **attributes)


def rect(x, y, width, height, class_=None, **attributes):
    """Return a rectangle; rx is the radius of its corners."""
    return element("rect", x=x, y=y, width=width, height=height, class_=class_, **attributes)


def line(x1, y1, x2, y2, class_="rule", **attributes):
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)
