"""Faults of the variants, each of which a test must see: (old, new, fault) by file.

Most were seen in public implementations of the papers.
"""

CHAIN, HEADS, TREE, KSEQ = (f"tests/variants/test_{name}.py"
                            for name in ("chain", "heads", "tree", "kseq"))
TESTS = {
    **{f"variants/{name}.py": [CHAIN]
       for name in ("lookup", "assisted", "block", "lenient", "big_little", "staged")},
    **{f"variants/{name}.py": [HEADS] for name in ("medusa", "blockwise")},
    **{f"variants/{name}.py": [TREE] for name in ("tree", "tree_gpt2")},
    "variants/kseq.py": [KSEQ],
}

BELOW = "return [(child, row) for child, row in self.proposals if self.parents[child] == node]"
BY_FILE = {
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
