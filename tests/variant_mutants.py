"""Faults of the variants, each of which a test must see: (file, old, new, fault), as in mutants.py.

Most were seen in public implementations of the papers.
"""

CHAIN, HEADS = "tests/test_variants_chain.py", "tests/test_variants_heads.py"
TREE, KSEQ, ALL = "tests/test_variants_tree.py", "tests/test_variants_kseq.py", "tests/test_variants.py"

TESTS = {
    **{f"variants/{name}.py": [CHAIN] for name in ("lookup", "assisted", "block", "lenient", "big_little", "staged")},
    **{f"variants/{name}.py": [HEADS] for name in ("medusa", "blockwise")},
    "variants/tree.py": [TREE], "variants/kseq.py": [KSEQ], "variants/__init__.py": [ALL], "gpt2.py": [TREE],
}

MUTANTS = [
    # lookup
    ("variants/lookup.py", "range(len(x) - n - 1, -1, -1)", "range(len(x) - n, -1, -1)",
     "the suffix finds itself: nothing to copy behind it"),
    ("variants/lookup.py", "range(len(x) - n - 1, -1, -1)", "range(len(x) - n)",
     "the earliest occurrence instead of the latest"),
    ("variants/lookup.py", "    p_draft = one_hot_rows(guesses, p_target.shape[-1])", "    p_draft = p_target[:-1]",
     "a copied guess with the target's law as its own: always kept"),
    ("variants/lookup.py", "min(K, room - 1)", "K", "copies beyond N"),
    # assisted
    ("variants/assisted.py", "        if row[guesses[-1]] < threshold:\n            break",
     "        if row[guesses[-1]] < threshold:\n            guesses.pop(), p_draft.pop()\n            break",
     "an unsure guess is thrown away because of its own probability"),
    ("variants/assisted.py", "one_hot_rows([row.argmax()], len(row))[0] if greedy else row)\n        guesses.append(sample(p_draft[-1], rng))",
     "row)\n        guesses.append(int(row.argmax()) if greedy else sample(row, rng))",
     "the best id as the guess, with the softmax row in the ratio"),
    ("variants/assisted.py", "K + 2 if n_kept == n_guesses", "K + 2 if n_kept",
     "K grows although a guess was rejected"),
    ("variants/assisted.py", "max(1, K - 1)", "K - 1", "K falls to 0 and stays below"),
    # block
    ("variants/block.py", "    n = next((t for t in range(k, 0, -1)  # from the top: the first to succeed is the largest\n"
     "              if accept(chance(t, share[t], p_draft, p_target), rng)), 0)",
     "    n = next((t - 1 for t in range(1, k + 1)\n"
     "              if not accept(chance(t, share[t], p_draft, p_target), rng)), k)",
     "stop at the first test that fails"),
    ("variants/block.py", "residual(share[n] * p_target[n], p_draft[n])", "residual(p_target[n], p_draft[n])",
     "the token-by-token residual"),
    ("variants/block.py", "out.append(min(out[-1] * p_target[t][token] / p_draft[t][token], 1))",
     "out.append(out[-1] * min(p_target[t][token] / p_draft[t][token], 1))",
     "each ratio cut at 1: a liked guess no longer pays for another"),
    ("variants/block.py", "missing = surplus + 1 - share", "missing = surplus + 1", "wrong chance to keep t guesses"),
    # lenient
    ("variants/lenient.py", "p_target[t][token] / (lenience * p_draft[t][token])",
     "lenience * p_target[t][token] / p_draft[t][token]", "lenience on the wrong side"),
    ("variants/lenient.py", "sample(residual(p_target[t], p_draft[t]), rng)", "sample(p_target[t], rng)",
     "the target's law after a rejection, not the residual"),
    ("variants/lenient.py", "lenience * p_target[t].max()", "lenience", "greedy lenience against 1, not against the best"),
    # big_little
    ("variants/big_little.py", "        if row.max() < fallback:\n            break\n        rows.append(row)\n"
     "        guesses.append(int(row.argmax()))",
     "        rows.append(row)\n        guesses.append(int(row.argmax()))\n        if row.max() < fallback:\n            break",
     "the unsure id is written"),
    ("variants/big_little.py", "if distance > rollback)",
     "if distance > rollback and guesses[t] != p_large[t].argmax())", "an id too far off is kept if it is the large model's best"),
    ("variants/big_little.py", "-np.log(p_large[t][token])", "-np.log(p_large[t - 1][token])", "the row before"),
    ("variants/__init__.py", "fallback=fallback,", "fallback=fallback or 0.6,", "a threshold of 0 becomes the default"),
    # tree
    ("variants/tree.py", "            law = residual(law, p_draft)", "            law = law",
     "siblings tested against the whole law again"),
    ("variants/tree.py", "        drawn.append((sample(row, rng), row / row.sum()))",
     "        drawn.append((sample(row, rng), drawn[0][1] if drawn else row / row.sum()))",
     "drawn without replacement, tested as if with"),
    ("variants/tree.py", "return list(zip(best, one_hot_rows(best, len(row))))", "return [(token, row) for token in best]",
     "the most probable children with their softmax row in the ratio"),
    ("variants/tree.py", "    return [(child, law) for child, law in tree.proposals if tree.parents[child] == node]",
     "    return sorted(((child, law) for child, law in tree.proposals if tree.parents[child] == node),\n"
     "                  key=lambda pair: -pair[1][tree.tokens[pair[0]]])",
     "siblings tested in the order of the draft's probability"),
    ("variants/tree.py", "    return [(child, law) for child, law in tree.proposals if tree.parents[child] == node]",
     "    return list({child: (child, law) for child, law in tree.proposals if tree.parents[child] == node}.values())",
     "a guess made twice is tested once"),
    ("variants/tree.py", "warp(row, ids=ids + path, **knobs)", "warp(row, ids=ids, **knobs)", "the penalty forgets the path"),
    ("variants/tree.py", "        sees[i] |= sees[parent] & (parent >= 0)", "        sees[i, parent] |= parent >= 0",
     "a node sees its parent only"),
    ("variants/tree.py", "widths[: room - 1]", "widths", "a tree deeper than what is wanted"),
    ("gpt2.py", "n - 1 + depths]", "np.arange(n, n + n_nodes)]", "positions by column, not by depth"),
    ("gpt2.py", "self.cache[..., n : n + len(path), :] = kept", "pass", "the accepted path's columns stay where they are"),
    ("gpt2.py", "        path = max(fits, key=len, default=())", "        path = ()", "the accepted path is computed again"),
    ("gpt2.py", "(tokens, paths), n, self.nodes = self.nodes, len(self.ids), ([], ())", "(tokens, paths), n = self.nodes, len(self.ids)",
     "an old tree is looked at again"),
    # kseq
    ("variants/kseq.py", "p_target - once * ((1 - (1 - beta) ** m) / beta)", "p_target - once", "the residual of one guess"),
    ("variants/kseq.py", "m = guesses[0][1], len(guesses)", "m = guesses[0][1], len({child for child, _ in guesses})",
     "a guess made twice counts once"),
    ("variants/kseq.py", "low, high = (low, middle) if large_enough(middle) else (middle, high)",
     "low, high = (middle, high) if large_enough(middle) else (low, middle)", "the bisection runs the wrong way"),
    # staged
    ("variants/staged.py", "p_draft += list(round.p_target[: len(round.ids)])",
     "p_draft += list((*round.p_draft, round.p_target[-1])[: len(round.ids)])", "the inner draft's rows in the outer ratio"),
    ("variants/staged.py", "p_draft += list(round.p_target[: len(round.ids)])",
     "p_draft += list(round.p_target[-len(round.ids) :])", "rows of other places"),
    ("variants/staged.py", "propose(tree, node, other, p_draft)", "propose(tree, node, other, law)",
     "siblings drawn without replacement, tested as if with"),
    ("variants/staged.py", "np.bincount(text[n:][ends]", "np.bincount(text[: len(text) - n][ends]", "counts the ids before, not behind"),
    # medusa
    ("variants/medusa.py", "list(enumerate(one_hot_rows(tokens, scores.shape[-1])))",
     "[(i, np.exp(scores[len(c) - 1]) / np.exp(scores[len(c) - 1]).sum()) for i, c in enumerate(choices)]",
     "heads' best ids with their softmax row in the ratio"),
    ("variants/medusa.py", "x + round.ids[:-1], states[1 + node_of(tree, round.ids[:-1])]", "x + round.ids[:-1], states[-1]",
     "the state of the last node, not of the one where the round stopped"),
    ("variants/medusa.py", "if len(x) > 1 and x[:-1] != seen:", "if len(x) > 1 and seen is None:", "another text begins with the old state"),
    ("variants/medusa.py", "min(epsilon, delta * np.exp(-entropy))", "max(epsilon, delta * np.exp(-entropy))", "the larger threshold"),
    ("variants/medusa.py", "np.exp(-entropy)", "2 ** (-entropy)", "the entropy in bits"),
    ("variants/medusa.py", "(length[node], chance[node])", "(chance[node], length[node])", "the most probable path, not the longest"),
    ("variants/medusa.py", "x = h + z *", "x = z *", "no residual connection in the heads"),
    # blockwise
    ("variants/blockwise.py", "if t >= minimum - 1 and", "if t >= minimum and", "the minimum counts guesses, not ids"),
    ("variants/blockwise.py", "+ np.count_nonzero(row[:token] == row[token])", "", "ties all count as best"),
    ("variants/blockwise.py", "in_top(p_target[t], token, top_k)", "in_top(p_target[t + 1], token, top_k)", "the row of the next place"),
]
