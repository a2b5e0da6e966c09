"""The ground floor, which is not needed to understand the method.

backend      arrays and matrix products
checkpoints  file formats of models and their downloads
terminal     argparse with errors in one line
markdown     tables
memory       the file of --memory
statistics   standard errors, and how surprising a frequency is
"""
