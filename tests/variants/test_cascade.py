"""Speculative cascades: the text is distributed as pi, which rule OPT defines."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import law, text_law
from sampling import with_sampling
from speculative import complete, generate
from tests.distributions import assert_same_law
from tests.small import Logits, of_probabilities
from tests.toys import PAIRS, context_free, counted, one_hot
from variants import Models
from variants.cascade import DECODER, build, cascade

DRAFT, TARGET = PAIRS["dense"]


def opt(q, p, price):
    """Return one row of pi, as the paper writes it: q is the draft's row, p the target's."""
    exact_q = [Fraction(prob) for prob in q]
    exact_p = [Fraction(prob) for prob in p]
    tv = sum(max(b - a, 0) for a, b in zip(exact_q, exact_p))
    defers = max(exact_q) < max(exact_p) - Fraction(price) * tv
    return np.array(p if defers else q)


@pytest.mark.parametrize("price", [np.nextafter(-1, -2), -1.00000000000001, -2.0])
def test_a_price_below_minus_1_is_the_target_to_the_last_bit(price):
    """The draft's best token loses all the mass, so the lead is -TV up to rounding."""
    for q, p in (([0.8, 0.1, 0.1], [0.5, 0.2, 0.3]), ([0.7, 0.2, 0.1], [0.3, 0.35, 0.35])):
        step = build(of_probabilities(context_free(q), context_free(p)), 1, price)
        assert step([0], 2, np.random.default_rng(0)).p_target.tolist() == [p, p]


def pi_of(draft, target, price, sharpen=np.asarray):
    """Return the cascade as one model."""
    return lambda ids, n_last=1: np.array([sharpen(opt(q, p, price)) for q, p in
                                           zip(draft(ids, n_last), target(ids, n_last))])


# ---- the distribution of the whole text

@pytest.mark.parametrize("price", [0.0, 0.3])
@pytest.mark.parametrize("sampling", [
    dict(temperature=0.4), dict(temperature=1.0, top_k=2, repetition_penalty=2.5),
    dict(temperature=0.0), dict(temperature=0.0, repetition_penalty=2.5)], ids=str)
def test_pi_has_the_rows_after_all_sampling_settings(sampling, price):
    greedy = sampling["temperature"] == 0
    warm = sampling | {"temperature": 1.0} if greedy else sampling  # what the rule compares
    models = [with_sampling(Logits(model), **warm) for model in (DRAFT, TARGET)]
    pi = pi_of(*models, price, one_hot if greedy else np.asarray)
    for x in ([0, 1, 0], [1], [2, 2]):
        step = build(Models(Logits(DRAFT), Logits(TARGET), sampling), K=2, price=price)
        assert_same_law(law(partial(complete, x, step, 3)), text_law(x, pi, 3))


# ---- the rule

weights = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)
distributions = weights.map(lambda row: np.array([Fraction(w, sum(row)) for w in row]))


@settings(max_examples=40)
@given(distributions, distributions, st.fractions(-2, 2), st.fractions(0, 1))
def test_a_row_is_the_papers_formula_and_a_higher_price_never_defers_more(q, p, price, more):
    rows = cascade(np.array([q, p]), np.array([p, q]), price).tolist()
    assert rows == [opt(q, p, price).tolist(), opt(p, q, price).tolist()]
    if rows[0] == q.tolist():
        assert cascade(q[None], p[None], price + more)[0].tolist() == q.tolist()


def test_at_a_price_of_minus_1_a_tie_goes_to_the_draft_so_only_prices_below_are_exact():
    p_draft, p_target = np.array([[0.75, 0.25]]), np.array([[0.5, 0.5]])  # TV 0.25
    assert cascade(p_draft, p_target, -1.0).tolist() == p_draft.tolist()
    is_exact = lambda price: DECODER.exact({"price": price})
    assert not is_exact(-1.0) and is_exact(np.nextafter(-1, -2)) and not is_exact(0.0)


def test_no_rounding_defers_at_a_price_of_1():
    """If p exceeds q only at the best token of both, max p - max q is TV: a tie."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        p = rng.dirichlet(np.ones(5))
        best = p.argmax()
        lead = np.diff(np.sort(p))[-1]  # of the best token over the second
        shift = rng.random() / 2 * lead
        q = p + shift / 4
        q[best] = p[best] - shift
        assert cascade(q[None], p[None], 1.0)[0].tolist() == q.tolist()


# ---- passes and accepted guesses

def test_a_round_is_K_draft_steps_and_a_pass_of_each_model_over_all_guesses():
    draft, target = counted(DRAFT), counted(TARGET)
    step = build(of_probabilities(draft, target), 3, 0.2)
    rounds = list(generate([0], step, 30, np.random.default_rng(0)))
    sizes = [len(result.guesses) for result in rounds]
    assert draft.calls == [n for k in sizes for n in [*[1] * k, k + 1]]
    assert target.calls == [k + 1 for k in sizes]
