"""Oliaro et al. (2024), "SuffixDecoding". Lossless.

Adds to lookup.py: counts of everything that followed, and a draft where they are not sure. The
guess is what followed the last m tokens most often, and is as long as the counts are sure of it.
Finished texts can be remembered for the next one.

    x             the tokens so far
    trie          every run of up to `depth` tokens, with how often it occurred: one of x, and one
                  of the memory, the finished texts (memory.py)
    m             how many tokens a guess looks back: 1, 2, ... depth - 1 are all tried
    probability   of a guess: the product of the relative frequencies on its path
    score         the sum of the probabilities: how many guesses are expected to be right
    factor        after m tokens at most min(cap, factor m) guesses: alpha in the paper's MAX_SPEC
    min_prob      the least probability of a guess, by the counts
    sure          the least score with which the counts guess; below it the draft guesses K tokens

A copied guess is not drawn, so its row is one-hot, as in lookup.py; the draft's guesses have the
draft's rows. The choice between the two is made before any sampling, so both are exact.
"""

from sampling import one_hot_rows
from speculative import guess, make_step, verify
from variants.registry import Decoder, Flag, whole
from variants.shared.memory import read_memory


class Node:
    """The end of a run of tokens."""

    __slots__ = ("token", "count", "followed", "best", "children")

    def __init__(self, token=None):
        self.token, self.children = token, {}  # token that came next -> Node
        self.count = self.followed = 0  # how often the run occurred; how often a token came next
        self.best = None  # the most frequent child, of equals the latest

    def add_child(self, token):
        """Count that this token came next; return the node of the longer run."""
        child = self.children.get(token)
        if child is None:
            child = self.children[token] = Node(token)
        child.count, self.followed = child.count + 1, self.followed + 1
        if self.best is None or child.count >= self.best.count:
            self.best = child
        return child


class Trie:
    """Count every run of up to `depth` tokens of some texts.

    >>> trie = Trie(3, [[0, 1, 0, 2, 0, 1]])
    >>> trie.find([0]).count, trie.find([0, 1]).count, trie.find([1, 1])
    (3, 2, None)
    """

    def __init__(self, depth, texts=()):
        self.depth, self.root, self.ends = depth, Node(), []
        for text in texts:
            self.ends = []  # no run continues into the next text
            self.extend(text)

    def extend(self, tokens):
        """Append tokens to the text: each makes the runs that end before it longer."""
        for token in tokens:
            longer = self.ends[: self.depth - 1]  # of 1, 2, ... tokens
            self.ends = [node.add_child(token) for node in (self.root, *longer)]

    def find(self, tokens):
        """Return the node of a run, or None if it did not occur."""
        node = self.root
        for token in tokens:
            node = node and node.children.get(token)
        return node


def most_frequent_path(node, n, min_prob):
    """Return up to n tokens along the most frequent continuation, and their score.

    Subtle: divide by what followed. A node's count includes the end of x, where no token followed
    yet: it is the one to be guessed.
    """
    guesses, probability, score = [], 1.0, 0.0
    while node.best and len(guesses) < n:
        probability *= node.best.count / node.followed
        if probability < min_prob:
            break
        node = node.best
        guesses.append(node.token)
        score += probability
    return guesses, score


def best_guess(x, counts, k, factor=2.0, min_prob=0.1):
    """Return up to k guesses and their score: over all m and tries, those with the largest score.

    Of equal scores that of the largest m, and then of the first trie. ([], 0.0) if no run is known.

    >>> trie = Trie(8, [[0, 1, 2, 0, 1, 3, 0, 1, 2, 0]])
    >>> best_guess([9, 0], [trie], k=4)  # 1 always came after 0, and then 2 in two of three cases
    ([1, 2], 1.6666666666666665)
    """
    found = [([], 0.0)]
    for m in range(min(counts[0].depth - 1, len(x)), 0, -1):
        for node in filter(None, (trie.find(x[-m:]) for trie in counts)):
            found.append(most_frequent_path(node, int(min(k, factor * m)), min_prob))
    return max(found, key=lambda pair: pair[1])


def suffix_or_draft(draft, n_vocab, K=4, cap=10, factor=2.0, min_prob=0.1, depth=16, sure=3.0,
                    memory=()):
    """Return the guess of one text, a `guess(x, k, rng)` that keeps a trie of the text.

    `memory` holds other texts. With `sure` 0 the draft is never used. ValueError if factor,
    min_prob or sure is out of its range.
    """
    if not (factor > 0 and 0 <= min_prob <= 1 and sure >= 0):
        raise ValueError(f"need factor > 0, 0 <= min_prob <= 1 and sure >= 0, got {factor}, "
                         f"{min_prob} and {sure}")
    trie, text, remembered = Trie(depth), [], Trie(depth, memory)

    def suffix_guess(x, k, rng):
        nonlocal trie, text
        if x[: len(text)] != text:  # a different text
            trie, text = Trie(depth), []
        trie.extend(x[len(text) :])
        text = list(x)
        guesses, score = best_guess(x, [trie, remembered], cap, factor, min_prob)
        if score >= sure:
            return guesses[:k], one_hot_rows(guesses[:k], n_vocab)
        return guess(x, min(k, K), rng, draft)

    return suffix_guess


def build(models, K: Flag(whole, "guesses per round of the draft") = 4,
          cap: Flag(whole, "most guesses copied in a round") = 10,
          factor: Flag(float, "most guesses per token looked back") = 2.0,
          min_prob: Flag(float, "stop copying where the probability of a guess, by the counts, "
                         "falls below this") = 0.1,
          depth: Flag(whole, "longest run of tokens counted, its guesses included") = 16,
          sure: Flag(float, "copy if at least this many guesses are expected to be right, else "
                     "use the draft; 0: always copy") = 3.0,
          memory: Flag(str, "a file of finished texts to copy from too; this one is added") = ""):
    """Return the step. The texts in the file `memory` are read here; main.py adds the new one."""
    n_vocab = models.target.n_vocab
    texts = read_memory(memory, n_vocab) if memory else ()
    guess = suffix_or_draft(models.probabilities("draft"), n_vocab, K, cap, factor, min_prob,
                            depth, sure, texts)
    return make_step(models.probabilities("target"), max(K, cap), guess)


DECODER = Decoder(
    "suffix", "Oliaro et al. (2024)", "https://arxiv.org/abs/2411.04975",
    idea="counts what followed the last words; asks the draft where the counts are unsure",
    guess=suffix_or_draft, test=verify, build=build)
