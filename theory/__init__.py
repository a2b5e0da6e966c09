"""Compute the papers' formulas, and prove their theorems.

speedup    closed forms: tokens per round, the best K, the speed-up
hardware   the arithmetic and the bytes of a pass

Proofs that Coq checks (docs/proof.md): lossless.v (Theorem 1), block.v, tree.v, traversal.v
"""
