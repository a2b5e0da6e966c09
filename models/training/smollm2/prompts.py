"""Make prompts of six kinds from templates; training and test share no template and no topic.

    question, list, story, code      about topics, or tasks for a program
    summary, rewrite                 of a passage: an earlier answer of the model to a question,
                                     or a story of it

prompts.toml has the templates, the topics, the tasks, and how often each kind comes.
"""

import tomllib
from pathlib import Path

import numpy as np

PARTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def prompts(seed, passages, held_out=False):
    """Yield (kind, prompt) without end. `passages` is a list that may grow meanwhile.

    >>> next(prompts(0, []))[0] in PARTS["shares"]
    True
    """
    rng = np.random.default_rng(seed)
    part = PARTS["held_out" if held_out else "training"]
    kinds, shares = zip(*PARTS["shares"].items())
    while True:
        kind = rng.choice(kinds, p=shares)
        if kind in ("summary", "rewrite") and not passages:
            continue  # until the model has written some
        t, u = rng.choice(part["topics"], 2, replace=False)
        p = passages[rng.integers(len(passages))] if passages else ""
        template = rng.choice(part["templates"][kind])
        yield kind, template.format(t=t, u=u, c=rng.choice(part["tasks"]), p=p)
