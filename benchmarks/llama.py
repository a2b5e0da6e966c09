"""llama.cpp at the same work: its server on this machine, with our models as GGUF files.

    python -m tools.export_gguf tales-large large.gguf
    python -m tools.export_gguf tales-small small.gguf
    python -m benchmarks.llama large.gguf --draft small.gguf --N 40 "Once upon a time" "The king"

Keys, values and weights are float32 and flash attention is off, as in our forward pass, so that
greedy texts can be compared. It needs xllamacpp (requirements/engines.txt), which is imported
where it is used. All prompts are sent at once; the answers come as one JSON object a line.
"""

import argparse
import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import requests

SAMPLING = {"temperature": 0, "cache_prompt": False, "ignore_eos": True, "return_tokens": True}


@contextlib.contextmanager
def server(target, draft=None, K=4, n_ctx=512, n_threads=None, n_parallel=1):
    """llama.cpp's server on 127.0.0.1 with one or two GGUF files: yields its URL.

    n_ctx is for each of the n_parallel texts; more than the models have aborts the process.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(target), n_ctx * n_parallel, n_parallel
    params.verbosity, params.hostnames = 0, ["127.0.0.1"]
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    pools = [params.cpuparams, params.cpuparams_batch]
    if draft is not None:
        kinds, speculative = xllamacpp.common_speculative_type, params.speculative
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculative.draft.mparams.path = str(draft)
        speculative.draft.n_max, speculative.draft.n_min, speculative.draft.p_min = K, 1, 0.0
        speculative.draft.cache_type_k = speculative.draft.cache_type_v = params.cache_type_k
        pools += [speculative.draft.cpuparams, speculative.draft.cpuparams_batch]
    for pool in pools:
        pool.n_threads = n_threads or os.cpu_count()
    running = xllamacpp.Server(params)
    try:
        yield running.listening_address
    finally:
        del running  # which stops it


def complete(url, prompt, N, **sampling):
    """What the server answers: "content", "tokens", "timings". `prompt` is a text, or ids."""
    asked = {"prompt": prompt, "n_predict": N} | SAMPLING | sampling
    answer = requests.post(f"{url}/completion", json=asked, timeout=300)
    answer.raise_for_status()
    return answer.json()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", help="a GGUF file")
    parser.add_argument("prompts", nargs="+")
    parser.add_argument("--draft", help="a GGUF file")
    parser.add_argument("--K", type=int, default=4, help="guesses per round")
    parser.add_argument("--N", type=int, default=40, help="new tokens")
    parser.add_argument("--threads", type=int, help="of each model; all cores by default")
    parser.add_argument("--parallel", type=int, default=1, help="texts in one batch")
    args = parser.parse_args()
    with (server(args.target, args.draft, args.K, n_threads=args.threads,
                 n_parallel=args.parallel) as url,
          ThreadPoolExecutor(len(args.prompts)) as pool):
        for answer in pool.map(lambda prompt: complete(url, prompt, args.N), args.prompts):
            print(json.dumps({name: answer[name] for name in ("content", "tokens", "timings")}))


if __name__ == "__main__":
    main()
