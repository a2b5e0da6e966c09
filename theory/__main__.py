"""Print the arithmetic and the bytes of one pass of a released GPT-2.

    python -m theory --table decode --size 1558M
"""

import argparse

from theory.hardware import GPT2_SIZES, cache_bytes, intensity_table, pass_bytes, pass_flops


def report(size, n_new, n_past, n_last, n_bytes):
    """Yield the lines of one table: a layer step by step, its sum, and the whole pass."""
    hparams = GPT2_SIZES[size]
    flops = pass_flops(hparams, n_new, n_past, n_last)
    moved = pass_bytes(hparams, n_new, n_past, n_bytes)
    cache = cache_bytes(hparams, n_past + n_new, n_bytes)
    rows = intensity_table(n_new, n_past, hparams["n_embd"], hparams["n_head"], n_bytes)
    sums = sum(row.flops for row in rows), sum(row.elements for row in rows)
    yield (f"{size}: tokens read {n_new}, in the cache before {n_past}; n_embd "
           f"{hparams['n_embd']}, n_head {hparams['n_head']}, {n_bytes} bytes per element")
    yield f"No  {'one layer':34}{'FLOP':>16}{'elements':>14}{'FLOP/byte':>11}"
    for i, row in enumerate(rows, 1):
        yield f"{i:2}  {row.step:34}" + (figures(*row[1:]) if row.flops else f"{'-':>41}")
    yield f"    {'sum':34}" + figures(*sums, sums[0] / (n_bytes * sums[1]))
    yield (f"all {hparams['n_layer']} layers, n_last {n_last}: {flops / 1e9:,.2f} GFLOP, "
           f"{moved / 1e6:,.1f} MB ({cache / 1e6:,.1f} MB of it cache)")


def figures(flops, elements, intensity):
    """Return the columns of a Row."""
    return f"{flops:16,}{elements:14,}{intensity:11.2f}"


def main(argv=None):
    """Print one of the two tables of arithmetic intensity for a size of GPT-2."""
    parser = argparse.ArgumentParser("python -m theory", description=main.__doc__)
    parser.add_argument("--table", choices=["prefill", "decode"], required=True)
    parser.add_argument("--size", choices=GPT2_SIZES, default="1558M")
    parser.add_argument("--n_seq", type=int, metavar="L", help="tokens the prefill reads, or "
                        "tokens in the cache before decoding (default: as many as n_ctx allows)")
    parser.add_argument("--K", type=int, default=0, help="guesses verified with the decoded token")
    parser.add_argument("--n_bytes", type=int, default=2, help="bytes per element (default: 2)")
    args = parser.parse_args(argv)
    if args.K < 0:
        parser.error(f"need --K >= 0, got {args.K}")
    n_new = 0 if args.table == "prefill" else args.K + 1
    n_seq = GPT2_SIZES[args.size]["n_ctx"] - n_new if args.n_seq is None else args.n_seq
    shape = (n_seq, 0, 1) if args.table == "prefill" else (n_new, n_seq, n_new)
    try:
        print(*report(args.size, *shape, args.n_bytes), sep="\n")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
