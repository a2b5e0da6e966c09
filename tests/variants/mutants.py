"""Faults of the variants, each of which a test must see: (old, new, fault) by file.

Most were seen in public implementations of the papers.
"""

CHAIN, HEADS, TREE, KSEQ, ALL = (f"tests/variants/test_{name}.py"
                                 for name in ("chain", "heads", "tree", "kseq", "registry"))
COUPLED = "tests/variants/test_coupled.py"
TESTS = {
    **{f"variants/{name}.py": [COUPLED] for name in ("match", "coupled")},
    **{f"variants/{name}.py": [CHAIN]
       for name in ("lookup", "assisted", "block", "lenient", "staged")},
    **{f"variants/{name}.py": [HEADS] for name in ("medusa", "blockwise")},
    **{f"variants/{name}.py": [TREE] for name in ("tree", "tree_gpt2")},
    "variants/kseq.py": [KSEQ], "variants/big_little.py": [CHAIN, ALL],
}

BELOW = "return [(child, row) for child, row in self.proposals if self.parents[child] == node]"
BY_FILE = {
    "variants/match.py": [
        ("        if ids[-1] != token:\n"
         "            return ids\n",
         "        if ids[-1] != token:\n"
         "            return ids[:-1] + [draw(row, rng)]\n",
         "a fresh draw where the target's own was not the guess"),
        ("        if ids[-1] != token:\n"
         "            return ids\n",
         "        if ids[-1] != token:\n"
         "            return ids[:-1] or ids\n",
         "the draw that was not the guess is thrown away"),
        ("zip(p_target, [*guesses, None])", "zip(p_target[1:], [*guesses, None])",
         "the row of the next position"),
        ("p_target[1 + node]", "p_target[node]", "the row of the node before"),
        ('if guesses == "best" else', 'if guesses == "drawn" else', "drawn and best exchanged"),
    ],
    "variants/coupled.py": [
        ("del kept[: len(round.ids)]", "kept.clear()",
         "numbers of positions that were not reached are drawn anew"),
        ("del kept[: len(round.ids)]", "del kept[: len(round.guesses)]",
         "numbers of guesses used up, not those of the text"),
        ("del kept[: len(round.ids)]", "pass", "every round draws with the first one's numbers"),
        ("with_kept(partial(match, draw=draw))", "partial(match, draw=draw)",
         "the target draws with numbers of its own"),
        ("probs / exponentials(", "probs * exponentials(", "the last of the race, not the first"),
        ("exponentials(rng.random(), len(probs))",
         "exponentials(rng.random() * probs.max(), len(probs))",
         "a race whose numbers depend on the row"),
        ('K, guess, SAMPLERS[sampler])', 'K, guess)',
         "draft and target draw by different functions"),
        ("verify=partial(match_verify, draw=SAMPLERS[sampler]))", "verify=match_verify)",
         "plain decoding beside it draws by another function"),
        ("if not 0 < probs.sum() < np.inf:", "if False:", "a race without speeds has a winner"),
    ],
    "variants/lookup.py": [
        ("range(len(x) - n - 1, -1, -1)", "range(len(x) - n, -1, -1)",
         "the suffix finds itself: nothing to copy behind it"),
        ("range(len(x) - n - 1, -1, -1)", "range(len(x) - n)",
         "the earliest occurrence instead of the latest"),
        ("one_hot_rows(guesses, n_vocab)", "one_hot_rows(guesses, n_vocab) * 0.5 + 0.5 / n_vocab",
         "a copied guess with a row that says it was drawn"),
        ("else copy(x, source, k)", "else copy(x, source, k + 1)", "copies beyond N"),
    ],
    "variants/assisted.py": [
        ("        if row[guesses[-1]] < threshold:\n"
         "            break",
         "        if row[guesses[-1]] < threshold:\n"
         "            guesses.pop(), p_draft.pop()\n"
         "            break",
         "an unsure guess is thrown away because of its own probability"),
        ("one_hot_rows([row.argmax()], len(row))[0] if greedy else row)\n"
         "        guesses.append(sample(p_draft[-1], rng))",
         "row)\n"
         "        guesses.append(int(row.argmax()) if greedy else sample(row, rng))",
         "the best id as the guess, with the softmax row in the ratio"),
        ("K + 2 if n_kept == n_guesses", "K + 2 if n_kept",
         "K grows although a guess was rejected"),
        ("max(1, K - 1)", "K - 1", "K falls to 0 and stays below"),
    ],
    "variants/block.py": [
        ("    n = k  # from the top: the first to succeed is the largest\n"
         "    while n > 0 and not accept(chance(n, share[n], p_draft, p_target), rng):\n"
         "        n -= 1\n",
         "    n = 0\n"
         "    while n < k and accept(chance(n + 1, share[n + 1], p_draft, p_target), rng):\n"
         "        n += 1\n",
         "stop at the first test that fails"),
        ("residual(share[n] * p_target[n], p_draft[n])", "residual(p_target[n], p_draft[n])",
         "the token-by-token residual"),
        ("out.append(min(out[-1] * p_target[t][token] / p_draft[t][token], 1))",
         "out.append(out[-1] * min(p_target[t][token] / p_draft[t][token], 1))",
         "each ratio cut at 1: a liked guess no longer pays for another"),
        ("missing = surplus + 1 - share", "missing = surplus + 1",
         "wrong chance to keep t guesses"),
    ],
    "variants/lenient.py": [
        ("p_target[t][token] / (lenience * p_draft[t][token])",
         "lenience * p_target[t][token] / p_draft[t][token]", "lenience on the wrong side"),
        ("sample(residual(p_target[t], p_draft[t]), rng)", "sample(p_target[t], rng)",
         "the target's law after a rejection, not the residual"),
        ("lenience * p_target[t].max()", "lenience",
         "greedy lenience against 1, not against the best"),
    ],
    "variants/big_little.py": [
        ("        if row.max() < fallback:\n"
         "            break\n"
         "        rows.append(row)\n"
         "        guesses.append(int(row.argmax()))",
         "        rows.append(row)\n"
         "        guesses.append(int(row.argmax()))\n"
         "        if row.max() < fallback:\n"
         "            break",
         "the unsure id is written"),
        ("and distance(guesses[n], p_large[n]) <= rollback",
         "and (distance(guesses[n], p_large[n]) <= rollback or guesses[n] == "
         "p_large[n].argmax())",
         "a token too far off is kept if it is the large model's best"),
        ("distance(guesses[n], p_large[n])", "distance(guesses[n], p_large[n - 1])",
         "the row before"),
        ("fallback=fallback)", "fallback=fallback or 0.6)", "a threshold of 0 becomes the default"),
    ],
    "variants/tree.py": [
        ("            left = residual(left, row)", "            left = left",
         "siblings tested against the whole law again"),
        ("        drawn.append((sample(row, rng), row / row.sum()))",
         "        drawn.append((sample(row, rng), drawn[0][1] if drawn else row / row.sum()))",
         "drawn without replacement, tested as if with"),
        ("return list(zip(best, one_hot_rows(best, len(row))))",
         "return [(token, row) for token in best]",
         "the most probable children with their softmax row in the ratio"),
        (BELOW,
         "return sorted(((child, row) for child, row in self.proposals if self.parents[child] "
         "== node),\n"
         "                      key=lambda pair: -pair[1][self.tokens[pair[0]]])",
         "siblings tested in the order of the draft's probability"),
        (BELOW,
         "return list({child: (child, row) for child, row in self.proposals\n"
         "                     if self.parents[child] == node}.values())",
         "a guess made twice is tested once"),
        ("ids=texts[i], **settings", "ids=texts[0], **settings", "the penalty forgets the path"),
        ("sees[i] |= sees[parent]", "sees[i, parent] = True", "a node sees its parent only"),
        ("widths[:k]", "widths", "a tree deeper than what is wanted"),
    ],
    "variants/tree_gpt2.py": [
        ("n - 1 + depths]", "np.arange(n, n + n_nodes)]", "positions by column, not by depth"),
        ("self.cache[:, :, :, n : n + len(path)] = kept", "pass",
         "the accepted path's columns stay where they are"),
        ("        path = max(fits, key=len, default=())", "        path = ()",
         "the accepted path is computed again"),
        ("(tokens, paths), n, self.nodes = self.nodes, len(self.ids), ([], ())",
         "(tokens, paths), n = self.nodes, len(self.ids)", "an old tree is looked at again"),
    ],
    "variants/kseq.py": [
        ("p_target - once * ((1 - (1 - beta) ** m) / beta)", "p_target - once",
         "the residual of one guess"),
        ("m = guesses[0][1], len(guesses)",
         "m = guesses[0][1], len({child for child, _ in guesses})",
         "a guess made twice counts once"),
        ("low, high = (low, middle) if large_enough(middle) else (middle, high)",
         "low, high = (middle, high) if large_enough(middle) else (low, middle)",
         "the bisection runs the wrong way"),
    ],
    "variants/staged.py": [
        ("p_draft += list(round.p_target[: len(round.ids)])",
         "p_draft += list((*round.p_draft, round.p_target[-1])[: len(round.ids)])",
         "the inner draft's rows in the outer ratio"),
        ("p_draft += list(round.p_target[: len(round.ids)])",
         "p_draft += list(round.p_target[-len(round.ids) :])", "rows of other places"),
        ("tree.add(node, other, its_row)", "tree.add(node, other, row)",
         "siblings drawn without replacement, tested as if with"),
        ("np.bincount(text[n:][ends]", "np.bincount(text[: len(text) - n][ends]",
         "counts the ids before, not behind"),
    ],
    "variants/medusa.py": [
        ("(row,) = one_hot_rows([token], scores.shape[-1])",
         "row = np.exp(scores[len(choice) - 1])\n"
         "        row = row / row.sum()",
         "heads' best ids with their softmax row in the ratio"),
        ("return self.states[1 + node]", "return self.states[-1]",
         "the state of the last node, not of the one where the round stopped"),
        ("if ids[: len(x)] == x else None", "if True else None",
         "another text begins with the old state"),
        ("min(epsilon, delta * np.exp(-entropy))", "max(epsilon, delta * np.exp(-entropy))",
         "the larger threshold"),
        ("np.exp(-entropy)", "2 ** (-entropy)", "the entropy in bits"),
        ("(length[node], chance[node])", "(chance[node], length[node])",
         "the most probable path, not the longest"),
        ("x = h + z *", "x = z *", "no residual connection in the heads"),
    ],
    "variants/blockwise.py": [
        ("n < minimum - 1 or", "n < minimum or", "the minimum counts guesses, not ids"),
        ("+ np.count_nonzero(row[:token] == row[token])", "", "ties all count as best"),
        ("in_top(p_target[n], guesses[n], top_k)", "in_top(p_target[n + 1], guesses[n], top_k)",
         "the row of the next place"),
    ],
}
MUTANTS = [(file, *mutant) for file, mutants in BY_FILE.items() for mutant in mutants]

# ---- what does not arrive: faults of the builders, by what stands there once and its replacement

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}


def without(settings, *names):
    """Code of the sampling settings, some of which are missing."""
    return f"{{**{settings}, **{({name: NEUTRAL[name] for name in names})}}}"


def missing(piece, who, *names):
    """A mutant whose draft or target does not see some of the settings."""
    for settings in ("models.at_temperature_1", "models.sampling"):
        if settings in piece:
            return (piece, piece.replace(settings, without(settings, *names)),
                    f"the {who} does not see {' and '.join(names)}")
    lacking = f"models._replace(sampling={without('models.sampling', *names)}).probabilities("
    return (piece, piece.replace("models.probabilities(", lacking),
            f"the {who} does not see {' and '.join(names)}")


ONE = 'models.probabilities("{}")'
AT_1 = 'models.probabilities("{}", temperature_1=models.is_greedy)'
OF_TREE = "with_tree_sampling(models.target, **models.sampling)"
BOTH = '(models.probabilities(name, temperature_1=True) for name in ("draft", "target"))'
PLACES = {  # by builder: where the settings of the target and of the draft come in
    "speculative": (ONE.format("target"), ONE.format("draft")),
    "lookup": (ONE.format("target"), None),
    "assisted": (ONE.format("target"), AT_1.format("draft")),
    "match": (ONE.format("target"), "settings = models.sampling |"),
    "coupled": (f"return coupled({ONE.format('target')}", ONE.format("draft")),
    "block": (ONE.format("target"), ONE.format("draft")),
    "lenient": (AT_1.format("target"), ONE.format("draft")),
    "tree": (OF_TREE, "else models.sampling)"),
    "kseq": (OF_TREE, ONE.format("draft")),
    "staged": (f"target={ONE.format('target')}", f"small, {ONE.format('draft')}"),
    "medusa": ("**models.sampling)", None),
    "blockwise": ("**models.at_temperature_1)", None),
    "big_little": (BOTH, None),
}
ARRIVING = {
    "speculative": [('"target"), K)', '"target"), 4)', "--K does not arrive"),
                    (ONE.format("draft"), ONE.format("target"), "the target drafts for itself"),
                    missing(ONE.format("target"), "target", "top_k"),
                    missing(ONE.format("target"), "target", "temperature"),
                    missing(ONE.format("target"), "target", "repetition_penalty"),
                    missing(ONE.format("draft"), "draft", "repetition_penalty")],
    "lookup": [("max_ngram=max_ngram", "max_ngram=3", "--max_ngram does not arrive")],
    "assisted": [("temperature_1=models.is_greedy", "temperature_1=False",
                  "confidence read off a one-hot row"),
                 ("K, schedule, confidence,", "K, 'constant', confidence,",
                  "--schedule does not arrive"),
                 ("K, schedule, confidence,", "K, schedule, 0.4,", "--confidence does not arrive")],
    "match": [('if guesses == "best"', "if True", "--guesses does not arrive")],
    "coupled": [("draw=SAMPLERS[sampler])\n    return coupled", "draw=race)\n    return coupled",
                 "--sampler does not arrive at the guess")],
    "lenient": [("lenience=lenience)", "lenience=0.3)", "--lenience does not arrive"),
                ("temperature_1=models.is_greedy", "temperature_1=False",
                 "greedy lenience read off a one-hot row")],
    "big_little": [("rollback=rollback)", "rollback=5.0)", "--rollback does not arrive"),
                   ("fallback=fallback)", "fallback=0.6)", "--fallback does not arrive"),
                   ("K=run", "K=10", "--run does not arrive"),
                   (BOTH, BOTH.replace("True", 'name == "target"'),
                    "the small model at the run's temperature"),
                   (BOTH, BOTH.replace("True", 'name == "draft"'),
                    "the large model at the run's temperature"),
                   missing(BOTH, "pair", "top_k"), missing(BOTH, "pair", "repetition_penalty")],
    "tree": [('else "distinct"', 'else "independent"', "siblings auto are independent"),
             missing(OF_TREE, "target", "top_k"), missing(OF_TREE, "target", "repetition_penalty"),
             missing("models.at_temperature_1 if greedy", "greedy draft", "top_k", "top_p"),
             ("(models.at_temperature_1 if greedy else models.sampling)", "models.sampling",
              "greedy siblings from a one-hot row")],
    "kseq": [("chains=chains", "chains=2", "--chains does not arrive")],
    "staged": [("inner_K)\n", "2)\n", "--inner_K does not arrive"),
               ("ngram(n_vocab, order)", "ngram(n_vocab)", "--order does not arrive"),
               missing(OF_TREE, "target of a tree", "top_p")],
    "medusa": [("epsilon=epsilon, delta=delta", "epsilon=delta, delta=epsilon",
                "epsilon and delta swapped"),
               ("[acceptance]", '["exact"]', "--acceptance does not arrive"),
               ("sparse or cartesian", "cartesian", "--sparse does not arrive"),
               missing("**models.sampling)", "target", "top_k")],
    "blockwise": [("top_k=selection, minimum=minimum", "top_k=minimum, minimum=selection",
                   "selection and minimum swapped"),
                  ("range(1, block)", "range(1, 4)", "--block does not arrive")],
}
SETTINGS = "tests/variants/test_settings.py"
BUILDERS = [(f"variants/{name}.py", *mutant) for name, (target, draft) in PLACES.items()
            for mutant in [missing(target, "target", "top_p"),
                           *([missing(draft, "draft", "top_k", "top_p"),
                              missing(draft, "draft", "temperature")] if draft else []),
                           *ARRIVING.get(name, [])]]
