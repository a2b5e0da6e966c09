"""Run a decoder as main.py does: read the flags, load the models, decode, compare, describe.

flags     the flags of main.py: declared, parsed and checked
own       a rule that you wrote, run with real models
task      the models, the prompt and the settings of one run, loaded and checked
compare   plain decoding and a decoder: all figures of a run
describe  a comparison in words
rounds    every round of a run as data, or as one line
entries   the entries of one prompt: a line of --prompts, or a page's request
prompts   many prompts: one JSON record each, resumable
"""
