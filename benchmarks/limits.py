"""What keeps a pass of a few rows from costing one row: python -m benchmarks.limits

    block      2**19 weights, what gpt2.matmul multiplies by every row before it goes on
    first      its product with a row when it comes from memory
    further    the same when it lies in the cores' caches
    hand-over  giving work to a second Python thread and waiting for it, beside which one thread's
               share of a block is short
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.clock import medians

N_IN, N_OUT, N_BLOCKS = 768, 704, 128  # 277 MB: a block has left the caches when its turn comes


def microseconds(action):
    """The median of some calls."""
    return 1e6 * medians({"calls": action}, 512)["calls"]


def main():
    blocks, x = np.ones((N_BLOCKS, N_OUT, N_IN), np.float32), np.ones(N_IN, np.float32)
    turn = iter(range(10**6))
    first = microseconds(lambda: blocks[next(turn) % N_BLOCKS] @ x)
    further = microseconds(lambda: blocks[0] @ x)
    with ThreadPoolExecutor(1) as pool:
        hand_over = microseconds(lambda: pool.submit(int).result())
    print("| | microseconds |\n|---|---|")
    for name, value in {"first row of a block": first, "further row": further,
                        "hand-over to a thread": hand_over}.items():
        print(f"| {name} | {value:.1f} |")
    for n in (5, 8):
        times = 1 + (n - 1) * further / first
        print(f"\nBy matrix-vector products {n} rows cost {times:.2f} times one row.")


if __name__ == "__main__":
    main()
