"""What main.py and the tools show and measure.

flags     the command line of main.py
own       a rule of yours, read from a file
task      the models, the prompt and the settings of one run, loaded and checked
compare   plain decoding and a decoder, timed and counted
describe  a comparison in words
trace     every round of a run as data, or as one line
page      the page of a run, trace.html with the run's data
listing   the code of one round, as the page lists it
live      a page that shows a run while it is written
prompts   many prompts: one JSON record each, resumable
costs     the times of a draft step and of target passes
clock     functions timed in turns
hazards   acceptance by position in the round, and speed-ups, with intervals
shapes    what the acceptance by position hints at, in a sentence
race      decoders raced on the same texts, and the formula's prediction
"""
