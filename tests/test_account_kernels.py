"""What the account says of the kernels, against loops over pairs of tokens and the account of the whole path."""

import numpy as np
import pytest

from ledger.account import attention, kernels, values


@pytest.mark.parametrize("sizes", [(1, 1, 0), (5, 9, 4), (5, 9, None), (7, 3, 0), (4, 6, -2), (0, 3, 0), (3, 0, None)])
def test_pairs_are_those_that_are_seen(sizes):
    new_tokens, cached_tokens, first = sizes
    seen = np.ones((new_tokens, cached_tokens), bool)
    if first is not None:
        seen = np.arange(cached_tokens) <= first + np.arange(new_tokens)[:, None]
    assert kernels.seen_pairs(*sizes) == seen.sum()
    tiles = 0
    for i in range(0, new_tokens, 2):
        for j in range(0, cached_tokens, 3):
            # a tile's rows go on behind the last new token
            tiles += 6 * (first is None or j <= first + i + 1)
    assert kernels.seen_pairs(*sizes, 2, 3) == tiles


def test_the_least_of_decode_is_what_attention_says():
    least = attention.decode_absorbed_bytes(4096, 128, 512, 64, itemsize=2)
    paged = kernels.decode_paged_bytes(4096, 128, 512, 64, 2, 1152)
    assert paged.read == least.read + 4 * 4096
    assert paged.written == values.partials_bytes(1, 128, 512)
    worst = kernels.decode_paged_bytes(4096, 128, 512, 64, 2, 1152, row_blocks=128)
    assert worst.read - paged.read == 127 * 4096 * 1156


def test_products_are_those_of_the_content_path():
    sizes = dict(num_heads=16, nope_dim=128, latent_dim=512, value_dim=64)
    path = values.content_path_materialize(3, 1000, **sizes)
    assert kernels.expand_macs(1000, 16, 512, 128, 64) == path.keys + path.values
    assert kernels.attend_macs(3 * 1000, 16, 128, 0, 64) == (path.scores, path.mixing)
    assert kernels.value_up_macs(3, 16, 512, 64) == values.content_path_absorb(3, 1000, **sizes).values
