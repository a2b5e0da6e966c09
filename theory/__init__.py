"""Compute the papers' formulas.

speedup    closed forms: tokens per round, the best K, the speed-up
coupling   how often independent draws with shared randomness agree
hardware   why decoding waits for memory
"""
