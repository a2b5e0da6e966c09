"""Read encoder.json and vocab.bpe, vocab.json and merges.txt, or tokenizer.json."""

import json
from pathlib import Path

from lib.checkpoints.files import read_json

# Settings of tokenizer.json that change the ids, each with its only value that Encoder has.
ENCODER_SETTINGS = {"normalizer": None, "add_prefix_space": False, "use_regex": True,
                    "ignore_merges": False}


def read_vocabulary(folder: Path) -> tuple[dict, list, dict, str]:
    """Return {symbol: id}, the merges, the added tokens {symbol: id}, and the files' names.

    An added token stands for its own symbol. No merge makes it, so it is not encoded from a
    text.
    """
    if (folder / "tokenizer.json").is_file():
        vocab, merges, added = read_tokenizer(folder / "tokenizer.json")
        return vocab, merges, added, "tokenizer.json"
    vocab_path = folder / "encoder.json"  # OpenAI's names
    merges_path = folder / "vocab.bpe"
    if not vocab_path.is_file():  # Hugging Face's names
        vocab_path = folder / "vocab.json"
        merges_path = folder / "merges.txt"
    if not (vocab_path.is_file() and merges_path.is_file()):
        raise ValueError(f"need tokenizer.json, or vocab.json and merges.txt, in {folder}")
    vocab = read_json(vocab_path)
    merges = read_merges(merges_path)
    added_path = folder / "added_tokens.json"  # optional
    added = read_json(added_path) if added_path.is_file() else {}
    # The added tokens are missing in the file of the vocabulary.
    return vocab | added, merges, added, f"{vocab_path.name} and {merges_path.name}"


def read_tokenizer(path):
    """Return vocabulary, merges and added tokens of a tokenizer.json with byte-level BPE."""
    tokenizer = read_json(path)
    try:
        model = tokenizer["model"]
        split = tokenizer["pre_tokenizer"] or {}
        kind = model.get("type", "BPE")  # older files have no type
        if (kind, split.get("type")) != ("BPE", "ByteLevel"):
            raise ValueError(f"{kind} after {split.get('type')}")
        processor = tokenizer.get("post_processor") or {}
        if processor.get("special_tokens") or "sep" in processor:
            raise ValueError(f"a post_processor, {processor.get('type')}, that adds tokens "
                             "to a text: add --backend transformers")
        check_settings(tokenizer | split | model)
        merges = []
        # A merge is "a b" in older files and ["a", "b"] in newer ones.
        for pair in model["merges"]:
            symbols = pair.split(" ") if isinstance(pair, str) else pair
            merges.append(as_pair(symbols, path))
        added_tokens = tokenizer.get("added_tokens") or ()  # the list may be null
        added = {token["content"]: token["id"] for token in added_tokens}
        return model["vocab"] | added, merges, added
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"need GPT-2's byte-level BPE in {path}, got: {error}") from None


def check_settings(settings):
    """Raise ValueError if a setting of tokenizer.json gives ids that Encoder does not give."""
    for name, expected in ENCODER_SETTINGS.items():
        value = settings.get(name, expected)
        if value != expected:
            raise ValueError(f"{name} = {json.dumps(value):.80}, which changes the ids: add "
                             "--backend transformers")


def read_ends(folder, vocab):
    """Return the symbols that end a text: those with eos_token_id, else <|endoftext|>.

    The vocabulary may lack this id, because transformers writes 50256 by default, whatever the
    size of the vocabulary is.
    """
    ends = ends_of_folder(folder)
    symbols = [symbol for end in ends for symbol, token in vocab.items() if token == end]
    return symbols or ["<|endoftext|>"]


def ends_of_folder(folder):
    """Return the ids that end a text, from the first file that has them, as transformers."""
    return end_ids(folder / "generation_config.json", end_ids(folder / "config.json"))


def end_ids(path, default=None):
    """Return the ids of eos_token_id in a JSON file; `default` if there is no file or entry."""
    ends = read_json(path).get("eos_token_id", default) if path.is_file() else default
    if ends is None:  # no token ends a text
        return []
    ends = ends if isinstance(ends, list) else [ends]
    if not set(map(type, ends)) <= {int}:  # True is no id
        raise ValueError(f"need eos_token_id to be an id or a list of ids in {path}, got "
                         f"{ends!r:.80}")
    return ends


def read_merges(path):
    """Return the pairs of vocab.bpe or merges.txt: one per line, after the version's line."""
    try:
        # read_text has replaced CR LF by \n. splitlines would also split at rarer signs, such
        # as U+0085.
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text in {path}, got: {error}") from None
    if lines[0].startswith("#version"):
        lines = lines[1:]
    return [as_pair(line.split(" "), path) for line in lines if line]


def as_pair(symbols, path):
    """Return a merge as a tuple of two symbols."""
    if [*map(type, symbols)] != [str, str] or "" in symbols:
        raise ValueError(f"need merges of two symbols in {path}, got {str(symbols)[:80]}")
    return tuple(symbols)


def merge_lines(encoder):
    """Return the merges as lines, in the order in which they are applied."""
    pairs = sorted(encoder.ranks, key=encoder.ranks.get)  # by rank
    return [f"{left} {right}" for left, right in pairs]
