"""The papers' formulas: speedup (closed forms), hardware (why decoding waits for memory)."""
