"""Speculative cascades: the text is distributed as pi, which rule OPT writes down beforehand."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import assert_same_law, expectation, law, text_law, total_variation
from exact.toys import PAIRS, counted, mapped, one_hot, toy
from sampling import with_sampling
from speculative import complete, generate
from tests.small import Logits
from variants import Models
from variants.cascade import DECODER, cascade, cascade_step

ALPHAS = [-2.0, 0.0, 0.25, 0.6, 1.0]


def cascading(draft, target, K, alpha):
    """The step, from models of probabilities."""
    return partial(cascade_step, draft=draft, target=target, K=K, alpha=alpha, sharpen=np.asarray)


def opt(q, p, alpha):
    """One row of pi, as the paper writes it: q is the draft's row, p the target's."""
    exact_q, exact_p = ([Fraction(chance) for chance in row] for row in (q, p))
    tv = sum(max(b - a, 0) for a, b in zip(exact_q, exact_p))
    r = 1 if max(exact_q) < max(exact_p) - Fraction(alpha) * tv else 0
    return np.array([(1 - r) * a + r * b for a, b in zip(q, p)])


def pi_of(draft, target, alpha, sharpen=np.asarray):
    """The cascade as a model."""
    return lambda ids, n_last=1: np.array([sharpen(opt(q, p, alpha)) for q, p in
                                           zip(draft(ids, n_last), target(ids, n_last))])


# ---- the distribution of the whole text

@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", [name for name in PAIRS if name != "five tokens"])
def test_the_text_is_distributed_as_pi(name, alpha):
    for K in (1, 2):
        text = partial(complete, [0], cascading(*PAIRS[name], K, alpha), 3)
        assert_same_law(law(text), text_law([0], pi_of(*PAIRS[name], alpha), 3))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_text_is_distributed_as_pi_bit_by_bit(alpha):
    pair, alpha = [toy(3, seed, exact=True) for seed in (21, 22)], Fraction(alpha)
    step = cascading(*pair, 2, alpha)
    got = law(partial(complete, [0], step, 3))
    assert_same_law(got, text_law([0], pi_of(*pair, alpha), 3), tolerance=0)


DRAFT, TARGET = toy(3, 41, zeros=0), toy(3, 42, zeros=0)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("sampling", [
    dict(temperature=0.4), dict(temperature=1.0, top_k=2), dict(temperature=1.0, top_p=0.6),
    dict(temperature=1.0, repetition_penalty=2.5), dict(temperature=0.0),
    dict(temperature=0.0, repetition_penalty=2.5)], ids=str)
def test_pi_is_that_of_the_rows_after_all_sampling_settings(sampling, alpha):
    greedy = sampling["temperature"] == 0
    at = sampling | {"temperature": 1.0} if greedy else sampling  # what the rule compares
    rows = [with_sampling(Logits(model), **at) for model in (DRAFT, TARGET)]
    pi = pi_of(*rows, alpha, one_hot if greedy else np.asarray)
    for x in ([0, 1, 0], [1], [2, 2]):
        step = DECODER.build(Models(Logits(DRAFT), Logits(TARGET), sampling), K=2, alpha=alpha)
        assert_same_law(law(partial(complete, x, step, 3)), text_law(x, pi, 3))


def test_it_is_not_the_targets_text_and_its_distance_is_pis():
    draft, target = PAIRS["dense"]
    step = cascading(draft, target, 1, 0.0)
    got = law(partial(complete, [0], step, 2))
    expected = total_variation(text_law([0], pi_of(draft, target, 0.0), 2),
                               text_law([0], target, 2))
    assert total_variation(got, text_law([0], target, 2)) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.1


# ---- the rule

weights = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)
distributions = weights.map(lambda row: np.array([Fraction(w, sum(row)) for w in row]))


@settings(max_examples=40, deadline=None)
@given(distributions, distributions)
def test_the_ends_of_alpha_are_the_draft_and_the_target(q, p):
    rows = lambda alpha: cascade([q], [p], alpha)[0].tolist()
    assert rows(1) == rows(7) == q.tolist()
    assert rows(Fraction(-11, 10)) == rows(-2) == p.tolist()
    assert rows(0) == (p if max(q) < max(p) else q).tolist()


@settings(max_examples=40, deadline=None)
@given(distributions, distributions, st.fractions(-2, 2))
def test_a_row_is_that_of_the_papers_formula(q, p, alpha):
    assert cascade([q, p], [p, q], alpha).tolist() == [opt(q, p, alpha).tolist(),
                                                       opt(p, q, alpha).tolist()]


@settings(max_examples=40, deadline=None)
@given(distributions, distributions, st.fractions(-2, 2), st.fractions(0, 1))
def test_a_higher_price_never_makes_it_defer(q, p, alpha, more):
    if cascade([q], [p], alpha)[0].tolist() == q.tolist():
        assert cascade([q], [p], alpha + more)[0].tolist() == q.tolist()


def test_no_rounding_defers_at_a_price_of_1():
    """Where p exceeds q at the best token of both alone, max p - max q is TV: a tie."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        p = rng.dirichlet(np.ones(5))
        best, shift = p.argmax(), rng.random() / 2 * np.diff(np.sort(p))[-1]
        q = p + shift / 4
        q[best] = p[best] - shift
        assert cascade([q], [p], 1.0)[0].tolist() == q.tolist()


def test_at_minus_1_it_is_not_yet_the_target():
    q, p = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])  # max q - max p is TV: r = 0
    assert cascade(q, p, -1).tolist() == q.tolist()


# ---- what it costs, and what it gives

def test_a_round_is_K_plus_1_draft_steps_and_one_target_pass():
    draft, target = counted(DRAFT), counted(TARGET)
    rounds = list(generate([0], cascading(draft, target, 3, 0.2), 30, np.random.default_rng(0)))
    sizes = [len(round.guesses) + 1 for round in rounds]
    assert draft.calls == [1] * sum(sizes) and target.calls == sizes


@pytest.mark.parametrize("pair, alpha", [
    ((TARGET, TARGET), 0.0), ((TARGET, TARGET), -2.0), ((DRAFT, TARGET), 1.0)])
def test_a_draft_that_is_pi_needs_the_fewest_passes(pair, alpha):
    rounds = generate([0], cascading(*pair, 4, alpha), 20, np.random.default_rng(0))
    assert [len(round.ids) for round in rounds] == [5] * 4


def test_the_chance_to_keep_a_guess_grows_with_alpha():
    kept = [expectation(partial(cascading(*PAIRS["four tokens"], 2, alpha), [0], 3),
                        lambda round: round.n_accepted) for alpha in ALPHAS]
    assert kept == sorted(kept) and kept[0] < kept[-1] - 0.5


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_round_tells_the_rows_that_its_guesses_were_drawn_from(temperature):
    models = Models(Logits(DRAFT), Logits(TARGET), dict(temperature=temperature))
    step, draft = DECODER.build(models, K=3, alpha=0.2), models.probabilities("draft")
    x = [0]
    for round in generate(x, step, 20, np.random.default_rng(0)):
        assert np.array_equal(round.p_target, models.probabilities("target")(
            x + round.guesses, len(round.guesses) + 1))
        assert len(round.p_draft) == len(round.guesses)
        for t, row in enumerate(round.p_draft):
            assert np.array_equal(row, draft(x + round.guesses[:t], 1)[-1])
        x = x + round.ids


def test_greedy_models_are_kept_greedy():
    pair = [mapped(model, one_hot) for model in (DRAFT, TARGET)]
    assert len(text_law([0], pi_of(*pair, 0.0), 3)) == 1
    step = cascading(*pair, 2, 0.0)
    assert_same_law(law(partial(complete, [0], step, 3)),
                    text_law([0], pi_of(*pair, 0.0), 3))
