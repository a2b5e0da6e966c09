"""The papers' formulas, and proofs.

speedup (closed forms), coupling (draws that agree), hardware (why decoding waits for memory)

Proofs that Coq checks (docs/proof.md): lossless.v (Theorem 1), block.v, tree.v, traversal.v
"""
