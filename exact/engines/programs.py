"""Sample the engines that only run as a whole, caches included: llama.cpp and OpenVINO GenAI.

Draft and target are random GPT-2s of two layers and three tokens, so the target's distribution
of all texts is known. An engine writes n texts, each with its own seed. Its distance is the
total variation between their frequencies and the target's distribution. With

    limit = sqrt((m log 2 + log(1 / ERROR)) / (2 n))          m: the number of different texts

an exact engine exceeds the limit with a probability of at most ERROR. The distance is the largest
excess of frequency over probability in any set of texts. There are 2^m sets, and one set has an
excess above the limit with a probability of at most exp(-2 n limit^2) (Hoeffding). By the same
bound, an engine whose true distance is at least 2 limit is measured below the limit with a
probability of at most ERROR.
"""

from collections import Counter
from functools import cache, partial
from math import log, sqrt
from types import SimpleNamespace

import numpy as np

from exact.law import law, text_law, total_variation
from exact.rules.register import RULES, rule_step
from exact.toys import X
from gpt2 import GPT2
from lib.checkpoints import gguf, huggingface
from lib.checkpoints.weights import flatten, random_params
from sampling import with_sampling
from speculative import complete

TINY_SIZES = {"n_vocab": 3, "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2}
# the pair, out of 25, on which the wrong rule nearest to the target is farthest from it
SEEDS = {"draft": 26, "target": 27}
SCALE = 20  # random_params' matrices are multiplied by it, so that the rows differ
N_GUESSES = 2  # per round
N_TOKENS = 3  # of a text
N_TEXTS = 100_000
ERROR = 1e-6  # the probability of a wrong verdict, for an exact engine and for a distant one


# ---- the models, and what is known about them

def random_weights(name):
    """Return the parameters of the draft or the target."""
    params = random_params(TINY_SIZES, np.random.default_rng(SEEDS[name]))
    for _, weight in flatten(params):
        if weight.ndim == 2:  # a matrix; changed in place
            weight *= SCALE
    return params


@cache
def model(name):
    """Return the draft or the target as a model of probabilities that remembers its rows."""
    probabilities = with_sampling(GPT2(random_weights(name), TINY_SIZES["n_head"]))
    row = cache(lambda ids: probabilities(list(ids))[-1])  # one pass for each different text

    def rows(ids, n_last=1):
        # the last row follows the whole text, the row before it the text without its last token
        starts = [tuple(ids[: len(ids) - n_cut]) for n_cut in range(n_last)]
        return np.array([row(start) for start in reversed(starts)])

    return rows


@cache
def wanted():
    """Return the target's distribution of a text."""
    return text_law(X, model("target"), N_TOKENS)


def limit(n_texts, n_different):
    """Return the distance that an exact engine exceeds with probability ERROR at most.

    >>> round(limit(100_000, 27), 4)
    0.0128
    """
    return sqrt((n_different * log(2) - log(ERROR)) / (2 * n_texts))


@cache
def wrong_distances():
    """Return {name: distance} of the rules that are not exact, on these models."""
    wanted()  # before any enumeration: the first pass compiles, and a compiler draws file names
    distances = {}
    for rule in RULES:
        if not rule.exact:
            step = rule_step(rule, model("draft"), model("target"), N_GUESSES)
            texts = law(partial(complete, X, step, N_TOKENS))
            # whole texts, because these models' rows depend on more than the last token
            distances[rule.name] = total_variation(texts, wanted())
    return distances


def sampled_distance(write_text, n_texts=N_TEXTS):
    """Return how far the frequencies of texts are from the target's distribution."""
    seeds = np.random.default_rng(0).integers(2**31, size=n_texts)  # one per text
    texts = Counter((*X, *write_text(int(seed))) for seed in seeds)
    return total_variation({text: n / n_texts for text, n in texts.items()}, wanted())


# ---- llama.cpp

def llama_server(target_path, draft_path, n_ctx, n_guesses, n_threads=1, probabilistic=False):
    """Return llama.cpp's server of a target and perhaps a draft, all in float32."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    draft = params.speculative.draft
    params.verbosity = 0
    params.hostnames = ["127.0.0.1"]
    params.model.path = str(target_path)
    params.n_ctx = n_ctx
    params.n_parallel = 1  # one text at a time
    if draft_path:
        draft.mparams.path = str(draft_path)
        draft.probabilistic = probabilistic
        # n_guesses in each round, however low their probability is
        draft.n_max = n_guesses
        draft.n_min = 1
        draft.p_min = 0.0
        kinds = xllamacpp.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    # float32 only: a lower precision would change the rows
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    for of_model in (params, draft):  # the target's parameters, and the draft's
        of_model.cache_type_k = of_model.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        of_model.cpuparams.n_threads = of_model.cpuparams_batch.n_threads = n_threads
    return xllamacpp.Server(params)


def letters(**changes):
    """Return a vocabulary of three letters. Files need one, although prompts are given as ids.
    """
    parts = {"vocab": {"a": 0, "b": 1, "c": 2}, "ranks": {}, "special": set(), "symbols": {},
             "end_of_text": None}
    parts.update(changes)
    return SimpleNamespace(**parts)


def llama_cpp(folder, with_draft=True, probabilistic=False):
    """Return llama.cpp with files in this folder as a function: seed -> N_TOKENS tokens."""
    for name in SEEDS:
        gguf.write_file(folder / f"{name}.gguf", letters(ranks={("a", "b"): 0}), TINY_SIZES,
                        random_weights(name))
    draft_path = folder / "draft.gguf" if with_draft else None
    server = llama_server(folder / "target.gguf", draft_path, TINY_SIZES["n_ctx"], N_GUESSES,
                          probabilistic=probabilistic)

    def write_text(seed):
        # the temperature is 1, all other settings are off, and no prompt comes from a cache
        answer = server.handle_completions({
            "prompt": list(X), "n_predict": N_TOKENS, "seed": seed, "temperature": 1.0, "top_k": 0,
            "top_p": 1.0, "min_p": 0.0, "cache_prompt": False, "ignore_eos": True})
        return map("abc".index, answer["choices"][0]["text"])  # token 0 is the letter a

    return write_text


# ---- OpenVINO GenAI

def openvino(folder, with_draft=True):
    """Return OpenVINO GenAI as a function: seed -> N_TOKENS tokens."""
    import openvino_genai
    from openvino import Tensor
    from optimum.exporters.openvino import main_export

    in_float32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    encoder = letters(vocab={"a": 0, "b": 1, "c": 2, "end": 3}, symbols={3: "end"},
                      end_of_text=3)  # which is not in the model, so no text ends early
    for name in SEEDS:
        # a folder of transformers, which the exporter turns into OpenVINO's own format
        (folder / name).mkdir()
        huggingface.write_folder(folder / name, encoder, TINY_SIZES, random_weights(name))
        main_export(str(folder / name), str(folder / f"{name}-ir"), convert_tokenizer=True,
                    task="text-generation-with-past")
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    settings = openvino_genai.GenerationConfig(
        max_new_tokens=N_TOKENS, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        ignore_eos=True)
    options = {"scheduler_config": scheduler, **in_float32}
    if with_draft:
        settings.num_assistant_tokens = N_GUESSES
        # the draft is an option of the target's pipeline
        options["draft_model"] = openvino_genai.draft_model(str(folder / "draft-ir"), "CPU",
                                                            **in_float32)
    pipeline = openvino_genai.LLMPipeline(str(folder / "target-ir"), "CPU", **options)

    def write_text(seed):
        settings.rng_seed = seed
        return pipeline.generate(Tensor(np.array([X])), settings).tokens[0]

    return write_text


# ---- in words

def explanation() -> str:
    """Return in words what the limit is, and which wrong rules it does not show."""
    largest = limit(N_TEXTS, len(wanted()))
    # a rule nearer than 2 limit may be measured below the limit
    missed = [f"*{name}*" for name, far in wrong_distances().items() if far < 2 * largest]
    error = f"{ERROR:.0e}".replace("e-0", "e-")  # 1e-6, which Python writes as 1e-06
    return (f"We compare {N_TEXTS:,} texts of random GPT-2s with K = {N_GUESSES}. An exact engine "
            f"stays below a distance of {largest:.4f}, and an engine whose distance is at least "
            f"{2 * largest:.4f} exceeds it; each statement fails with probability {error}. Of the "
            f"inexact rules of the register, {len(missed)} have a smaller distance here: "
            f"{'; '.join(missed)}.")
