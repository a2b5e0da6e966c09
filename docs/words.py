"""Find words that a page may not use, because this project says a different one.

    python -m docs words README.md docs/*.md      # prints each place; status 1 if there is one
"""

import re
from pathlib import Path

from docs.figures import NOT_PROSE

ROOT = Path(__file__).parent.parent
SAY = {  # a pattern of words: what to say instead
    r"(ratio|acceptance|one-hot|block) tests?": "rule",
    r"verifiers?": "acceptance rule",
    r"draft steps?": "draft pass",
    r"(?<!one-hot )rows?": "distribution, or position as a unit of cost",
    r"writes|wrote": "generates, gives or appends, for a model or a rule",
    r"unbiased|surplus|shortfalls?": "exact, residual",
    r"autoregressive": "plain decoding",
    r"anew|beside|dear|at hand": "a plain word",
}


def places_of_words(text):
    """Yield (line, words, what to say) of the prose of a page."""
    # Code, quoted output and links become spaces; line ends stay.
    text = re.sub(r'(src|srcset|href)="[^"]*"', "", text)
    prose = NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(prose.split("\n"), start=1):
        for pattern, say in SAY.items():
            for match in re.finditer(rf"(?<![-\w])({pattern})(?![-\w])", line, re.IGNORECASE):
                yield number, match[0], say


def check_pages(files):
    """Print each place of the pages; return the exit status."""
    found = []
    for name in files:
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [f"{name}:{number}: {words}: say {say}"
                  for number, words, say in places_of_words(text)]
    print("\n".join(found) or "No such words.")
    return 1 if found else 0
