"""A draft with a different vocabulary: exact with every decoder, and from the command line.

Texts are enumerated over two toy tokenizers that share three tokens. Each has a token that the
other lacks; a character is two tokens of the target; and the draft's longest tokens merge
across the boundaries of the target's tokens.
"""

import json
import re
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.tables import stored
from encoder import END_OF_TEXT, Encoder, byte_characters
from exact.law import expectation, law, text_law
from gpt2 import GPT2
from lib.checkpoints.huggingface import write_folder
from lib.checkpoints.weights import random_params
from measure.models import OPENINGS
from measure.passes import Timed
from sampling import warp, with_sampling
from speculative import complete, draft_and_verify, generate
from tests import bundled
from tests.commands import json_of_run, run_main
from tests.distributions import assert_same_law
from tests.reuse import assert_close, assert_used_is_fresh, each_copy, some_edits, tokens_read
from tests.small import COSTS, Logits, forms, n_rejected, needs, sampling_of
from tests.test_laws import ACCEPT_EQUALS, ALL, SETTINGS, WARM, X, fits, flags_with_equals
from tests.toys import toy
from variants import Models, build
from variants.shared.branches import Tree
from wrappers.intersection import CommonTokens, TokenLevelIntersection


class ToyTokenizer:
    """Encode by the longest of a few tokens that fits, from the left."""

    special = ()
    end_of_text = None

    def __init__(self, *symbols):
        self.symbols = dict(enumerate(symbols))

    @property
    def n_vocab(self):
        return max(self.symbols) + 1

    def decode_bytes(self, ids):
        return b"".join(self.symbols[token] for token in ids)

    def encode_bytes(self, data):
        if not data:
            return []
        fitting = [token for token, symbol in self.symbols.items() if data.startswith(symbol)]
        best = max(fitting, key=lambda token: len(self.symbols[token]))
        return [best, *self.encode_bytes(data[len(self.symbols[best]) :])]


FIRST, SECOND = (bytes([byte]) for byte in "é".encode())
TARGET = ToyTokenizer(b"a", b"aa", FIRST, SECOND)
DRAFT = ToyTokenizer("é".encode(), SECOND, b"aaa", FIRST, b"a")


common_tokens = cache(CommonTokens)


def wrapped(draft, tokenizer=DRAFT, n_ctx=99):
    """Return a draft over the target's ids."""
    draft.n_ctx = n_ctx
    return TokenLevelIntersection(draft, common_tokens(tokenizer, TARGET))


DRAFT_TOY, TARGET_TOY = toy(5, 41, zeros=0), toy(4, 42, zeros=0)


def toy_models(sampling):
    """Return new models: a draft with a small context, and a target."""
    draft = wrapped(Logits(DRAFT_TOY), n_ctx=4)
    return Models(draft, Logits(TARGET_TOY), sampling, None, COSTS)


# ---- the distribution

CASES = [(name, i, sampling) for name, i in ALL for sampling in SETTINGS
         if "draft" in needs(name, forms(name)[i].flags) and fits(name, i, sampling)]
# test_laws.py has all forms by default: to a decoder this draft is a model like others
DAILY = [(name, i, sampling) for name, i, sampling in CASES
         if i == 0 and (name == "speculative" or sampling != WARM)]
WEEKLY = [pytest.param(*case, marks=pytest.mark.weekly) for case in CASES if case not in DAILY]


@pytest.mark.parametrize("name, i, sampling", [*DAILY, *WEEKLY], ids=str)
def test_the_text_is_distributed_as_the_targets_own(name, i, sampling):
    new_step = lambda: build(name, toy_models(sampling), forms(name)[i].flags)
    got = law(lambda rng: tuple(complete(X, new_step(), 3, rng)))
    assert_same_law(got, text_law(X, toy_models(sampling).target_rows, 3))


def of_bytes(tokenizer, order):
    """Return a toy that depends on a text's bytes only: its rows in the order of ids."""
    return lambda ids, n_last=1: np.array([
        TARGET_TOY(tokenizer.decode_bytes(ids[: len(ids) - i]))[0][order]
        for i in reversed(range(n_last))])


@pytest.mark.parametrize("name", ACCEPT_EQUALS)
def test_no_guess_of_a_draft_with_the_targets_rows_at_other_ids_is_rejected(name):
    """Exactness alone cannot see a draft that reads a different text, or rows at wrong ids."""
    order = [2, 0, 3, 1]  # the target's id of each of the draft's tokens
    permuted = ToyTokenizer(*(TARGET.symbols[token] for token in order))
    draft_toy, target_toy = of_bytes(permuted, order), of_bytes(TARGET, range(4))
    sampling = sampling_of(name, 0.7) | dict(top_k=2)

    def rejected(rng):
        draft = wrapped(Logits(draft_toy), permuted)
        models = Models(draft, Logits(target_toy), sampling, None, COSTS)
        return n_rejected(build(name, models, flags_with_equals(name)), X, 3, rng)

    assert expectation(rejected, float) == pytest.approx(0, abs=1e-9)


# ---- the row

@pytest.mark.parametrize("ids", [[0], [0, 1], [2], [0, 2, 3], [1, 0, 1]])
def test_a_row_is_the_drafts_divided_by_the_sum_of_the_common_tokens(ids):
    logits = wrapped(Logits(DRAFT_TOY))(ids)[0]
    for temperature, penalty in product((0.0, 1e-6, 1.0, 1e30), (1e-3, 1.0, 1e3)):
        row = warp(logits, temperature, repetition_penalty=penalty, ids=ids)
        assert row[1] == 0 and row.sum() == pytest.approx(1)  # "aa" is not a token of the draft
    text = DRAFT.encode_bytes(TARGET.decode_bytes(ids))
    common = DRAFT_TOY(text)[0][[4, 3, 1]]  # a, and the halves of é
    np.testing.assert_allclose(warp(logits)[[0, 2, 3]], common / common.sum(), rtol=1e-12)


def test_a_row_has_an_entry_for_each_id_of_a_vocabulary_with_holes():
    target = ToyTokenizer(b"a", FIRST, SECOND)
    target.symbols = {0: b"a", 3: FIRST, 7: SECOND}
    draft = Logits(DRAFT_TOY)
    draft.n_ctx = 99
    model = TokenLevelIntersection(draft, CommonTokens(DRAFT, target))
    row = warp(model([0, 3]))[0]
    assert model.n_vocab == len(row) == 8 and set(np.flatnonzero(row)) == {0, 3, 7}
    # The target may write an id without a token, which has no bytes. A text without bytes is read
    # as a text that only starts: with the end of a text, or else with any token.
    np.testing.assert_array_equal(warp(model([0, 5, 3]))[0], row)
    assert model.common.draft_text([5, 5]) == [4]
    ending = ToyTokenizer(b"b", b"</s>", b"a")
    ending.end_of_text = 1
    assert CommonTokens(ending, target).draft_text([5, 5]) == [1]


def test_vocabularies_without_a_common_token_are_refused():
    with pytest.raises(ValueError, match="in common, got none among 2 and 1; choose a diff"):
        CommonTokens(ToyTokenizer(b"a", b"b"), ToyTokenizer(b"ab"))


# ---- texts

LETTERS = [*byte_characters().values()]


@cache
def encoders():
    """Return a draft's and a target's Encoder; both end texts, by different names."""
    symbols = [*reversed(LETTERS), "Ã©", "bc", "</s>", "<pad>"]
    draft = Encoder({symbol: token for token, symbol in enumerate(symbols)},
                    [("Ã", "©"), ("b", "c")], "</s>", ["<pad>"])
    symbols = [END_OF_TEXT, "<pad>", "<only here>", *LETTERS, "ab", "©b", "Ãb"]
    target = Encoder({symbol: token for token, symbol in enumerate(symbols)},
                     [("a", "b"), ("©", "b"), ("Ã", "b")], added=["<pad>", "<only here>"])
    return draft, target


@given(st.lists(st.integers(3, 261), min_size=1, max_size=12))
def test_the_drafts_text_has_the_bytes_of_the_targets(ids):
    draft, target = encoders()
    text = common_tokens(draft, target).draft_text(ids)
    assert draft.decode_bytes(text) == target.decode_bytes(ids)


@pytest.mark.parametrize("symbols, expected", [
    (["ab", "c"], ["a", "bc"]),  # it merges across the boundary
    (["b", "Ã"], ["b", "Ã"]),  # a text that ends within é
    (["b", "Ã", "©"], ["b", "Ã©"]), (["Ã", "©b", "c"], ["Ã©", "bc"])])
def test_a_text_is_read_as_the_draft_would_encode_it(symbols, expected):
    draft, target = encoders()
    ids = [target.vocab[symbol] for symbol in symbols]
    text = common_tokens(draft, target).draft_text(ids)
    assert [draft.symbols[token] for token in text] == expected


def test_special_tokens_are_common_by_their_role_or_name_and_otherwise_read_as_text():
    draft, target = encoders()
    common = common_tokens(*encoders())
    pairs = {target.symbols[a]: draft.symbols[b] for a, b in zip(common.ids, common.draft_ids)}
    assert pairs == {char: char for char in LETTERS} | {END_OF_TEXT: "</s>", "<pad>": "<pad>"}
    read = lambda *symbols: [draft.symbols[token] for token in common.draft_text(
        [target.vocab[symbol] for symbol in symbols])]
    assert read("b", END_OF_TEXT, "c") == ["b", "</s>", "c"]  # no merge across the end
    assert read(END_OF_TEXT) == ["</s>"] and read("<pad>", "<pad>") == ["<pad>"] * 2
    assert "".join(read("b", "<only here>")) == "b<onlyĠhere>"
    assert str(common) == "258 tokens in common, 99 % of the draft's and 98 % of the target's"


# ---- the draft's cache

# Tokens that the draft writes otherwise (ab, ©b), halves of a character, and special tokens.
SYMBOLS = ["a", "b", "c", "ab", "Ã", "©", "©b", "Ãb", END_OF_TEXT, "<pad>", "<only here>"]
SIZES = dict(n_embd=12, n_head=3, n_layer=2)


@cache
def draft_params(n_ctx):
    hparams = SIZES | {"n_vocab": encoders()[0].n_vocab, "n_ctx": n_ctx}
    return random_params(hparams, np.random.default_rng(0), np.float64)


def wrapped_gpt2(n_ctx=12):
    return TokenLevelIntersection(GPT2(draft_params(n_ctx), 3), common_tokens(*encoders()))


@given(some_edits([encoders()[1].vocab[symbol] for symbol in SYMBOLS]))
@settings(max_examples=50)
def test_a_used_draft_gives_the_rows_of_a_fresh_one(edits):
    """Texts shrink and grow at random, far beyond the draft's context."""
    fresh = lambda ids, n_last: with_sampling(wrapped_gpt2())(ids, n_last)
    assert_used_is_fresh(with_sampling(wrapped_gpt2()), fresh, edits, n_ctx=40)


@pytest.mark.parametrize("n_ctx, n_read", [
    (64, 40),
    # a full context: its last half and the new token are read, then 7 tokens one by one
    (16, 16 + (9 + 7) + (9 + 7) + (9 + 7))])
def test_the_common_start_of_two_texts_is_read_once(n_ctx, n_read):
    model = wrapped_gpt2(n_ctx)
    with tokens_read() as numbers:
        for n in range(1, 41):
            model(range(110, 110 + n))
    assert sum(numbers) == n_read


def test_a_draft_of_one_position_reads_the_last_of_its_tokens():
    model = wrapped_gpt2(n_ctx=1)
    for ids in ([100], [100, 101], [100, 101, 102, 110]):
        assert_close(model(ids), wrapped_gpt2(n_ctx=1)(ids[-1:]))


# ---- copies, and what is refused

@each_copy
def test_a_copy_gives_the_same_rows(copied):
    model = wrapped_gpt2()
    for wrapper in (model, Timed(model)):
        again = copied(wrapper)
        rows = again([100, 101, 7], 2)
        np.testing.assert_allclose(rows, model([100, 101, 7], 2), rtol=1e-9)
        assert again.n_vocab == model.n_vocab


@pytest.mark.parametrize("ids, n_last, message", [
    ([100, 262], 1, "need ids in 0 .. n_vocab - 1 = 261, got 262"),
    ([-1, 100], 1, "need ids in 0 .. n_vocab - 1 = 261, got -1"),
    ([100, "a"], 1, "need ids in 0 .. n_vocab - 1 = 261, got 'a'"),
    ([100], 0, "need 1 <= n_last <= 1 rows, got n_last = 0"),
    ([100], 2, "need 1 <= n_last <= 1 rows, got n_last = 2"),
    ([], 1, "need 1 <= n_last <= 0 rows, got n_last = 1"),
    ([100] + Tree([5], [-1]), 3, "need 1 <= n_last <= 2 rows, got n_last = 3")], ids=str)
def test_ids_and_rows_that_do_not_exist_are_named(ids, n_last, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        wrapped_gpt2()(ids, n_last)


# ---- from the command line

@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    """Return a folder with two Hugging Face models, each with its own vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, encoder) in enumerate(zip(("draft", "target"), encoders())):
        sizes = SIZES | {"n_vocab": encoder.n_vocab, "n_ctx": 40 + 24 * seed}
        (folder / name).mkdir()
        params = random_params(sizes, np.random.default_rng(seed))
        write_folder(folder / name, encoder, sizes, params)
    return folder


def flags_of(models_dir, *more):
    words = "--draft_model_size draft --target_model_size target --n_tokens_to_generate 30"
    return ["--models_dir", models_dir, *words.split(), "--dtype", "float64", *more]


@pytest.mark.parametrize("decoder", ["speculative", "tree"])
def test_a_pair_of_two_vocabularies_writes_the_targets_text(models_dir, decoder):
    got = json_of_run(*flags_of(models_dir, "--decoder", decoder))
    assert got["identical"] and len(got[decoder]["ids"]) == 30 and got["n_ctx"] == 64
    assert got["vocabularies"].startswith("258 tokens in common, 99 % of the draft's")


def test_the_share_of_common_tokens_is_one_line(models_dir):
    status, out, _ = run_main(*flags_of(models_dir, "--temperature", 1))
    assert status == 0 and out.count("\nVocabularies differ: 258 tokens in common, 99 %") == 1
    status, out, _ = run_main("--n_tokens_to_generate", 2)  # one vocabulary
    assert status == 0 and "ocabular" not in out


@pytest.mark.parametrize("decoder", ["speculative", "staged"])
def test_a_text_in_a_batch_is_the_text_alone(models_dir, decoder, tmp_path):
    (tmp_path / "prompts").write_text("abc\nbcé\n", encoding="utf-8")
    flags = flags_of(models_dir, "--decoder", decoder, "--temperature", 1,
                     "--prompts", tmp_path / "prompts")
    texts = []
    for batch in (1, 2):
        path = tmp_path / f"out{batch}"
        status, said, _ = run_main(*flags, "--out", path, "--batch", batch)
        assert status == 0 and "\nVocabularies differ: 258 tokens" in said
        lines = path.read_text("utf-8").splitlines()
        texts.append([json.loads(line)["ids"] for line in lines])
    assert texts[0] == texts[1] and len(texts[0][0]) == 30


def respelled(n_tokens):
    """Return the bundled draft with the first tokens of its vocabulary only, at other ids."""
    encoder = bundled.encoder()
    params, n_head = bundled.weights("tales-small")
    # the end of a text and the 256 bytes are tokens without a merge
    merges = sorted(encoder.ranks, key=encoder.ranks.get)[: n_tokens - 257]
    symbols = [*LETTERS, *map("".join, merges), END_OF_TEXT]
    np.random.default_rng(0).shuffle(symbols)
    vocab = {symbol: token for token, symbol in enumerate(symbols)}
    wte = params["wte"][[encoder.vocab[symbol] for symbol in symbols]]
    return Encoder(vocab, merges), params | {"wte": wte}, n_head


@pytest.mark.weekly
def test_the_tokens_per_pass_of_half_of_the_tokens_are_those_of_the_page():
    """docs/any_model.md quotes them."""
    ((_, recorded),) = stored("recorded")["a draft with its own vocabulary"]["rows"]
    encoder, *weights = respelled(2048)
    common = CommonTokens(encoder, bundled.encoder())
    assert str(common).startswith("2048 tokens in common, 100 % of the draft's")
    target = with_sampling(GPT2(*bundled.weights("tales-large")), temperature=0)
    n_passes = 0
    for prompt in OPENINGS:
        draft = TokenLevelIntersection(GPT2(*weights), common)
        step = draft_and_verify(with_sampling(draft, temperature=0), target, 4)
        rounds = generate(bundled.encoder().encode(prompt), step, 100, np.random.default_rng(0))
        n_passes += len(list(rounds))
    tokens_per_pass = 100 * len(OPENINGS) / n_passes
    assert tokens_per_pass == pytest.approx(float(recorded), abs=0.03)
