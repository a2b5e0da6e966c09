"""Arrays, and matrix products of few rows.

arrays    NumPy or CuPy, and a GPU's errors
products  which product multiplies a few rows
compiled  the product of few rows, compiled by Numba
int8      weights rounded to one byte
"""
