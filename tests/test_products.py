"""Products of few rows: whatever way the sizes choose, the matrix product comes out."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import products

SHAPES = [(8, 24), (64, 192), (192, 4099), (768, 3072), (1024, 1033)]  # some leave part of a block


@given(st.integers(1, 20), st.sampled_from(SHAPES), st.booleans())
@settings(deadline=None, max_examples=50)
def test_matmul_is_the_matrix_product_for_any_number_of_rows(n_rows, shape, small):
    rng = np.random.default_rng(n_rows)
    x, w = rng.normal(size=(n_rows, shape[0])), rng.normal(size=shape[::-1]).T
    with mock.patch.object(products, "has_small_kernels", lambda: small):  # either kind of machine
        got = products.matmul(x, w)
    np.testing.assert_allclose(got, x @ np.ascontiguousarray(w), rtol=0, atol=1e-9)


def test_weights_in_the_other_order_are_multiplied_too():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 64)), rng.normal(size=(64, 192))
    np.testing.assert_allclose(products.matmul(x, w), np.einsum("ri,io->ro", x, w), atol=1e-12)
