"""Sample the engines that only run as a whole, caches included: llama.cpp and OpenVINO GenAI.

Draft and target are random GPT-2s of two layers and three tokens, so the target's distribution
of all texts is known. An engine writes n texts, each with its own seed. Its measured distance
is the total variation between the frequencies of its texts and the target's distribution. There
are m different texts, and

    limit = sqrt((m log 2 + log(1 / ERROR)) / (2 n))

1. The distance is the largest difference of frequency and probability of any set of texts.
2. For an exact engine, the difference of one set exceeds the limit with a probability of at
   most exp(-2 n limit^2), which is ERROR / 2^m (Hoeffding).
3. There are 2^m sets, so an exact engine's distance exceeds the limit with a probability of at
   most ERROR.
4. If an engine's true distance is at least 2 limit, its probability of some set differs by at
   least 2 limit from the target's. Its distance is measured below the limit only if the
   frequency of this set is further than the limit from the engine's probability of this set.
   By step 2 this happens with a probability of at most ERROR.
"""

from collections import Counter
from functools import cache
from math import log, sqrt
from types import SimpleNamespace

import numpy as np

from exact.law import text_law, total_variation
from exact.toys import X
from gpt2 import GPT2
from lib.checkpoints import gguf, huggingface
from lib.checkpoints.weights import flatten, random_params
from sampling import with_sampling
from variants.shared.branches import texts_of_rows

TINY_SIZES = {"n_vocab": 3, "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2}
# a pair on which most wrong rules are far from the target
SEEDS = {"draft": 26, "target": 27}
SCALE = 20  # the factor of random_params' matrices, so that the rows differ
N_GUESSES = 2  # guesses per round
N_TOKENS = 3  # new tokens of a text
N_TEXTS = 100_000
ERROR = 1e-6  # the probability of a wrong verdict, for an exact engine and for a distant one


# ---- the models, and what is known about them

def random_weights(name):
    """Return the parameters of the draft or the target."""
    params = random_params(TINY_SIZES, np.random.default_rng(SEEDS[name]))
    for _, weight in flatten(params):
        if weight.ndim == 2:  # a matrix
            weight *= SCALE  # in place, so that `params` has it
    return params


@cache
def model(name):
    """Return the draft or the target as a probability model that computes each row once."""
    probabilities = with_sampling(GPT2(random_weights(name), TINY_SIZES["n_head"]))
    row_after_text = cache(lambda ids: probabilities(list(ids))[-1])

    def rows(ids, n_last=1):
        return np.array([row_after_text(tuple(text)) for text in texts_of_rows(ids, n_last)])

    return rows


@cache
def wanted():
    """Return the target's distribution of a text of N_TOKENS tokens: {text: probability}."""
    return text_law(X, model("target"), N_TOKENS)


def limit(n_texts, n_different):
    """Return the distance that an exact engine exceeds with probability ERROR at most."""
    return sqrt((n_different * log(2) - log(ERROR)) / (2 * n_texts))


def sampled_distance(write_text, n_texts=N_TEXTS):
    """Return how far the frequencies of texts are from the target's distribution."""
    seeds = np.random.default_rng(0).integers(2**31, size=n_texts)  # one per text
    counts = Counter((*X, *write_text(int(seed))) for seed in seeds)
    frequencies = {text: n / n_texts for text, n in counts.items()}
    return total_variation(frequencies, wanted())


# ---- llama.cpp

def llama_server(target_path, draft_path, n_ctx, n_guesses, n_threads=1, probabilistic=False,
                 copies=False):
    """Return llama.cpp's server in float32; it has no draft if draft_path is None."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    draft = params.speculative.draft
    kinds = xllamacpp.common_speculative_type
    params.verbosity = 0
    params.hostnames = ["127.0.0.1"]
    params.model.path = str(target_path)
    params.n_ctx = n_ctx
    params.n_parallel = 1  # one text at a time
    if draft_path:
        draft.mparams.path = str(draft_path)
        draft.probabilistic = probabilistic
        # n_guesses guesses in each round, even if their probability is low
        draft.n_max = n_guesses
        draft.n_min = 1
        draft.p_min = 0.0
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    if copies:  # what followed the last tokens earlier in the text
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    # float32 only: a lower precision would change the rows
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    float32 = xllamacpp.ggml_type.GGML_TYPE_F32
    for of_model in (params, draft):  # `params` are the target's
        of_model.cache_type_k = float32
        of_model.cache_type_v = float32
        of_model.cpuparams.n_threads = n_threads
        of_model.cpuparams_batch.n_threads = n_threads
    return xllamacpp.Server(params)


def letters(**changes):
    """Return a vocabulary of three letters, with changes; a file of a model must have one."""
    parts = {"vocab": {"a": 0, "b": 1, "c": 2}, "ranks": {}, "special": set(), "symbols": {},
             "end_of_text": None}
    parts.update(changes)
    return SimpleNamespace(**parts)


def llama_cpp(folder, with_draft=True, probabilistic=False):
    """Return llama.cpp with files in this folder as a function: seed -> N_TOKENS tokens."""
    for name in SEEDS:
        # one merge, because the gguf package refuses an empty list; prompts of ids need no
        # merges
        gguf.write_file(folder / f"{name}.gguf", letters(ranks={("a", "b"): 0}), TINY_SIZES,
                        random_weights(name))
    draft_path = folder / "draft.gguf" if with_draft else None
    server = llama_server(folder / "target.gguf", draft_path, TINY_SIZES["n_ctx"], N_GUESSES,
                          probabilistic=probabilistic)

    def write_text(seed):
        # temperature 1, no other setting, and no prompt from the cache of an earlier request
        answer = server.handle_completions({
            "prompt": list(X), "n_predict": N_TOKENS, "seed": seed, "ignore_eos": True,
            "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cache_prompt": False})
        text = answer["choices"][0]["text"]
        return map("abc".index, text)  # token 0 is the letter a

    return write_text


# ---- OpenVINO GenAI

def openvino(folder, with_draft=True):
    """Return OpenVINO GenAI as a function: seed -> N_TOKENS tokens."""
    import openvino_genai
    from openvino import Tensor
    from optimum.exporters.openvino import main_export

    in_float32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    # the model has the tokens 0 to 2, so it never writes the end of a text, token 3
    encoder = letters(vocab={"a": 0, "b": 1, "c": 2, "end": 3}, symbols={3: "end"},
                      end_of_text=3)
    for name in SEEDS:
        # the exporter turns a folder of transformers into OpenVINO's format, "-ir"
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
    """Return the sentences of the page about the limit."""
    largest = limit(N_TEXTS, len(wanted()))
    error = f"{ERROR:.0e}".replace("e-0", "e-")  # 1e-6, which Python writes as 1e-06
    return (f"Each total variation is measured on {N_TEXTS:,} texts by GPT-2s with random "
            f"weights and K = {N_GUESSES}. For an exact engine it is below {largest:.4f} with "
            f"probability 1 - {error}. For an engine whose true total variation is at least "
            f"{2 * largest:.4f}, it is above {largest:.4f} with the same probability.")
