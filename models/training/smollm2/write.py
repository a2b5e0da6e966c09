"""Let the model answer prompts, many at a time, and keep its states: what the head learns from.

A text has a row in one cache. When it ends, the next prompt takes its row. A pass reads one new
token of every text: llama.py computes it, and only `attend` here knows that the rows are of
different texts. (wrappers/batch_gpt2.py keeps each text's last bits, which costs speed.)
"""

import functools
import json
from typing import NamedTuple

import numpy as np

from cache import softmax
from lib.checkpoints.files import atomic
from models.training.smollm2.prompts import prompts
from utils import load_model

N_TEXTS = 128  # written at a time; BLAS is fastest for multiples of 64 rows
LONGEST_PROMPT = 260  # in tokens
N_NEW = 200  # an answer that is not finished then is cut
TEMPERATURES = (0.0, 0.7)  # texts take turns
N_SHARD = 96  # texts in a file
LENGTHS_OF_PASSAGES = (200, 700)  # in characters


class Text(NamedTuple):
    """Hold one answered prompt."""

    kind: str
    temperature: float
    n_prompt: int
    ids: list
    states: list  # of all tokens, after ln_f: arrays [n, n_embd]


class Writer:
    """Write the answers of N_TEXTS prompts at a time."""

    def __init__(self, tokenizer, model, rng):
        self.tokenizer = tokenizer
        self.model = model
        self.rng = rng
        n_layer, _, n_kv, _, d_head = model.cache.shape
        shape = (n_layer, 2, N_TEXTS, n_kv, LONGEST_PROMPT + N_NEW, d_head)
        self.cache = np.zeros(shape, model.dtype)
        self.texts = [None] * N_TEXTS
        self.logits = np.zeros((N_TEXTS, model.n_vocab), model.dtype)

    def begin(self, row, kind, ids, temperature):
        """Read a prompt into a row of the cache."""
        states = self.model.hidden(ids, len(ids))
        self.cache[:, :, row, :, : len(ids)] = self.model.cache[..., : len(ids), :]
        self.logits[row] = self.model.logits(states[-1:])
        self.texts[row] = Text(kind, temperature, len(ids), list(ids), [states])

    def write(self):
        """Append a token to every text, and read it."""
        tokens = self.logits.argmax(axis=1)
        temperatures = np.array([text.temperature for text in self.texts], self.logits.dtype)
        drawn = temperatures > 0
        tokens[drawn] = draw(self.logits[drawn] / temperatures[drawn, None], self.rng)
        positions = np.array([len(text.ids) for text in self.texts])
        for text, token in zip(self.texts, tokens):
            text.ids.append(int(token))
        # A text sees its own columns, up to the one of its new token.
        is_seen = np.arange(positions.max() + 1) <= positions[:, None]  # [N_TEXTS, n_seq]
        mask = np.where(is_seen, 0, -np.inf).astype(self.logits.dtype)
        attends = [rows_of_texts(layer, positions, mask) for layer in self.cache]
        states = self.model.forward(tokens, positions, attends)
        for text, state in zip(self.texts, states):
            text.states.append(state[None])
        self.logits = self.model.logits(states)

    def is_free(self, row):
        """Return whether a row has no text, or one that has ended or is too long."""
        text = self.texts[row]
        return (text is None or text.ids[-1] in self.tokenizer.end_tokens
                or len(text.ids) == text.n_prompt + N_NEW)


def draw(logits, rng):  # [n, n_vocab] -> [n]
    """Return a token drawn from softmax(logits) of each row."""
    # The token is the first whose sum is above a threshold, so it is the number of sums below.
    sums = softmax(logits).cumsum(axis=1)
    # In float64, because a random number just below 1 would become 1 in float32.
    thresholds = rng.random((len(sums), 1)) * sums[:, -1:]
    return (sums <= thresholds).sum(axis=1)


def rows_of_texts(cache, positions, mask):
    """Return one layer's `attend` for one new token of each text.

    `cache` is [2, n_texts, n_kv, n_columns, d_head], `mask` [n_texts, n_seq].
    """
    every_text = np.arange(len(positions))
    keys, values = cache[:, :, :, : mask.shape[1]]  # views, so `attend` writes into the cache

    def attend(q, k, v):  # [n_head, n_texts, d_head], 2 x [n_kv, n_texts, d_head] -> as q
        n_head, n_texts, d_head = q.shape
        # Each text has its own column: [n_texts, n_kv, d_head].
        keys[every_text, :, positions] = k.transpose(1, 0, 2)
        values[every_text, :, positions] = v.transpose(1, 0, 2)
        groups = q.transpose(1, 0, 2).reshape(n_texts, len(k), -1, d_head)
        scores = groups @ keys.mT / d_head**0.5  # [n_texts, n_kv, group, n_seq]
        out = softmax(scores + mask[:, None, None]) @ values
        return out.reshape(n_texts, n_head, d_head).transpose(1, 0, 2)

    return attend


def write_in_process(folder, n_tokens, seed, held_out=False):
    """Write the answers of one seed by a model of its own."""
    # Not in __main__.py: a new process cannot import a function of a package's __main__.
    write_answers(*load_model("smollm2"), folder, n_tokens, seed, held_out)


def write_answers(tokenizer, model, folder, n_tokens, seed, held_out=False):
    """Write files until a seed's answers have n_tokens tokens; resume after the last file."""
    files = sorted(folder.glob(f"{seed}-*.npz"))
    n_written = sum(map(n_written_in, files))
    n_files = len(files)
    n_begun = 0  # texts of this run
    passages: list[str] = []  # the prompts quote from this list while `remember` fills it
    stream = prompts([seed, n_files], passages, held_out)
    writer = Writer(tokenizer, model, np.random.default_rng([seed, n_files, 1]))
    finished: list[Text] = []
    while n_written < n_tokens:
        for row in filter(writer.is_free, range(len(writer.texts))):
            if text := writer.texts[row]:
                finished.append(text)
                n_written += len(text.ids) - text.n_prompt
                remember(tokenizer, text, passages)
            kind, ids = next_prompt(tokenizer, stream)
            writer.begin(row, kind, ids, TEMPERATURES[n_begun % len(TEMPERATURES)])
            n_begun += 1
        writer.write()
        if len(finished) >= N_SHARD or (finished and n_written >= n_tokens):
            save_answers(folder / f"{seed}-{n_files:05}.npz", finished)
            n_files += 1
            finished = []
            print(json.dumps({"seed": seed, "tokens": n_written}), flush=True)


def next_prompt(tokenizer, stream):
    """Return the kind and the ids of the next prompt that is not too long."""
    before, after = frame(tokenizer)
    for kind, prompt in stream:
        ids = tokenizer.encode(before + prompt + after)
        if len(ids) <= LONGEST_PROMPT:
            return kind, ids


@functools.cache  # chat_text starts a process
def frame(tokenizer):
    """Return what the chat template writes before and after a prompt."""
    return tokenizer.chat_text([{"role": "user", "content": "PROMPT"}]).split("PROMPT")


def remember(tokenizer, text, passages):
    """Add the whole sentences at the start of an answer in prose, if they are long enough."""
    shortest, longest = LENGTHS_OF_PASSAGES
    if text.kind not in ("question", "story"):
        return
    answer = tokenizer.decode(text.ids[text.n_prompt : -1])
    passage = answer[:longest].rpartition(".")[0] + "."
    if len(passage) > shortest:
        passages.append(passage)


def save_answers(path, texts):
    """Write texts to one file; all ids and states in a row."""
    with atomic(path) as file:
        np.savez(file, temperatures=[text.temperature for text in texts],
                 n_prompts=[text.n_prompt for text in texts],
                 lengths=[len(text.ids) for text in texts],
                 ids=np.concatenate([text.ids for text in texts]).astype(np.uint16),
                 states=np.concatenate([state for text in texts for state in text.states])
                 .astype(np.float16))


def n_written_in(path):
    """Return how many tokens the model wrote in a file."""
    with np.load(path) as arrays:
        return int((arrays["lengths"] - arrays["n_prompts"]).sum())
