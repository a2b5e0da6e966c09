"""Measure the acceptance of the bundled pair against the temperature of both models.

    python -m benchmarks acceptance --json benchmarks/results/acceptance.json    some minutes
    python -m benchmarks acceptance --show benchmarks/results/acceptance.json

    alpha   the mean, over all positions whose guess was tested, of the probability that the
            guess is accepted: the sum of min(p_target, p_draft) over the vocabulary
    own     alpha at a temperature, on texts written at that temperature
    same    alpha at a temperature, on the texts of temperature 1, so only the rows change

Positions of one text are not independent, so standard errors count texts.
"""

import numpy as np

from lib.markdown import markdown_table
from lib.statistics import standard_error
from measure import command
from measure.models import LENGTH, OPENINGS, load_benchmark_pair
from sampling import softmax, with_sampling
from speculative import draft_and_verify, generate
from theory.speedup import acceptance_rate
from variants.registry import whole

K = 4
TEMPERATURES = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]


def tested_rows(x, models, temperature, rng):  # -> [2, n_tested, n_vocab]
    """Return the target's and the draft's row at every tested position of one text."""
    target, draft = (with_sampling(model, temperature=temperature) for model in models)
    rounds = generate(x, draft_and_verify(draft, target, K), LENGTH, rng)
    pairs = [(result.p_target[t], result.p_draft[t])
             for result in rounds for t in range(result.n_tested)]  # in the text's order
    # The pairs are [n_tested, 2, n_vocab]; the axis of the two models becomes the first.
    return np.array(pairs).swapaxes(0, 1)


def mean(alphas):
    """Return the mean over the positions of all texts, and its standard error.

    `alphas` has an array per text: the probability of acceptance at each tested position.
    """
    values = np.concatenate(alphas)
    # texts[i] is the number of the text that values[i] was measured in: 0, 0, 0, 1, 1, ..
    n_positions = [len(text) for text in alphas]
    texts = np.repeat(range(len(alphas)), n_positions)
    return {"mean": float(values.mean()), "error": standard_error(values, texts)}


def all_figures(args):
    """Return {temperature: acceptance on its own texts, and on those of temperature 1}."""
    encoder, draft, target = load_benchmark_pair("pair")
    # Both are {temperature: a list with an array of acceptances per text}.
    own = {T: [] for T in TEMPERATURES}
    same = {T: [] for T in TEMPERATURES}
    for i in range(args.texts):
        x = encoder.encode(OPENINGS[i % len(OPENINGS)])
        # The target comes first, in `models` and in the rows, as acceptance_rate takes them.
        models = (target, draft)
        rows_at = {T: tested_rows(x, models, T, np.random.default_rng(i)) for T in TEMPERATURES}
        # Logarithms of probabilities at temperature 1 are logits, so softmax can apply a
        # different temperature to them.
        logits = np.log(rows_at[1.0])  # [2, n_tested, n_vocab]
        for T in TEMPERATURES:
            own[T].append(acceptance_rate(*rows_at[T]))
            target_rows, draft_rows = softmax(logits, T)
            same[T].append(acceptance_rate(target_rows, draft_rows))
    temperatures = {T: {"own": mean(own[T]), "same": mean(same[T])} for T in TEMPERATURES}
    return {"texts": args.texts, "N": LENGTH, "K": K, "temperatures": temperatures}


def paragraphs(figures, args):
    """Yield a sentence and the table."""
    yield (f"{figures['texts']} texts of {figures['N']} tokens (openings) at each temperature, "
           f"K = {figures['K']}; alpha ± its standard error:")
    yield markdown_table(
        ["temperature", "texts of this temperature", "texts of temperature 1"],
        [[temperature, mean_and_error(row["own"]), mean_and_error(row["same"])]
         for temperature, row in figures["temperatures"].items()])


def mean_and_error(figure):
    """Return a mean and its standard error as text."""
    return f"{figure['mean']:.3f} ± {figure['error']:.3f}"


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, flags={
    "texts": dict(type=whole, default=120, help="number of texts at each temperature")})
