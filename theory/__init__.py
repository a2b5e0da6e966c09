"""The papers' formulas.

speedup (closed forms), coupling (draws that agree), hardware (why decoding waits for memory)
"""
