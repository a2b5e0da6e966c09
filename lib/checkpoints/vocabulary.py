"""Read encoder.json and vocab.bpe, vocab.json and merges.txt, or tokenizer.json."""

from pathlib import Path

from lib.checkpoints.files import read_json


def read_vocabulary(folder: Path) -> tuple[dict, list, dict, str]:
    """Return {symbol: id}, the merges, the added tokens, and the names of the files read.

    An added token stands for itself. No merge makes it, so no text is encoded as one.
    """
    if (folder / "tokenizer.json").is_file():
        return *read_tokenizer(folder / "tokenizer.json"), "tokenizer.json"
    is_openai = (folder / "encoder.json").is_file()
    names = ("encoder.json", "vocab.bpe") if is_openai else ("vocab.json", "merges.txt")
    if not all((folder / name).is_file() for name in names):
        raise ValueError(f"need tokenizer.json, or vocab.json and merges.txt, in {folder}")
    vocab = read_json(folder / names[0])
    merges = read_merges(folder / names[1])
    added_tokens = folder / "added_tokens.json"
    added = read_json(added_tokens) if added_tokens.is_file() else {}
    return vocab | added, merges, added, " and ".join(names)


def read_tokenizer(path):
    """Return vocabulary, merges and added tokens of a tokenizer.json with byte-level BPE."""
    found = read_json(path)
    try:
        model = found["model"]
        split = found["pre_tokenizer"]
        if (model.get("type", "BPE"), split["type"]) != ("BPE", "ByteLevel"):
            raise ValueError(f"{model['type']} after {split['type']}")
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        added = {token["content"]: token["id"] for token in found.get("added_tokens") or ()}
        return model["vocab"] | added, [as_pair(pair, path) for pair in pairs], added
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"need GPT-2's byte-level BPE in {path}, got: {error}") from None


def read_end_of_text(folder, vocab):
    """Return the symbol with eos_token_id, <|endoftext|> if the vocabulary has no such id.

    generation_config.json overrides config.json, as in transformers; GPT2Config's default is
    50256, whatever the vocabulary.
    """
    ends = None
    for path in (folder / "config.json", folder / "generation_config.json"):
        if path.is_file():
            ends = read_json(path).get("eos_token_id", ends)
    ends = ends if isinstance(ends, list) else [ends]
    if len(ends) > 1:
        raise ValueError(f"need one eos_token_id in {folder}, got {ends!s:.80}: keep one, and "
                         "name all of them by --stop")
    return next((symbol for symbol, token in vocab.items() if token in ends), "<|endoftext|>")


def read_merges(path):
    """Return the pairs of vocab.bpe or merges.txt: one per line, after the version's line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # or CR LF
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text in {path}, got: {error}") from None
    lines = lines[1:] if lines[0].startswith("#version") else lines
    return [as_pair(line.split(" "), path) for line in lines if line]


def as_pair(symbols, path):
    """Return a merge as a tuple of two symbols."""
    if len(symbols) != 2 or not all(symbol and isinstance(symbol, str) for symbol in symbols):
        raise ValueError(f"need merges of two symbols in {path}, got {str(symbols)[:80]}")
    return tuple(symbols)


def merge_lines(encoder):
    """Return the merges as lines, most important first."""
    return [f"{left} {right}" for left, right in sorted(encoder.ranks, key=encoder.ranks.get)]
