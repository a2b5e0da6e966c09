"""Provide what several decoders use.

acceptance    how often guesses are accepted, with less weight on older rounds
branches      token trees
tree_gpt2     a GPT-2 or a Llama that scores a tree in one pass
best_tree     the best tree on average
dynamic_tree  the best tree of each round
states        the target's hidden states, for heads
heads         the file of a target's heads
eagle_head    EAGLE's head as a model
"""
