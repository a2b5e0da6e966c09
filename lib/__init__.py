"""The ground floor, which is not needed to understand the method.

backend      arrays and matrix products
checkpoints  file formats of models and their downloads
terminal     argparse with errors in one line
tokenizer    what the programs use of a tokenizer
markdown     tables
around       what a wrapper of a model offers
packages     import what only some runs need
prefix       how many tokens two texts share from the start
pattern      which tokens a regular expression, schema or grammar allows after a text
memory       the file of --memory
statistics   standard errors and intervals
"""
