"""What the decode and prefill kernels of ``ledger.kernels.gpu`` move and multiply, by formula.

A kernel walks in blocks, and what it reads again for each block is a factor here. Bytes are those of the tensors' own
values; that most of a second reading comes from a GPU's own cache is another matter. Lengths and slots' padding are
left out where they are a few bytes a request.
"""

from operator import index

from ledger.account.attention import Attention, Traffic, matmul_bytes, matmul_macs
from ledger.account.values import partials_bytes

#: Bytes of a page number in a block table, of a slot's number, and of a float32.
PAGE_NUMBER, SLOT, FLOAT32 = 4, 8, 4


def decode_paged_bytes(
    cached_tokens: int,
    rows: int,
    latent_dim: int,
    rope_dim: int,
    itemsize: int,
    entry_bytes: int,
    requests: int = 1,
    row_blocks: int = 1,
    splits: int = 1,
) -> Traffic:
    """Bytes of a decode kernel over a paged cache, up to the partial results of its ``splits``.

    ``rows`` (new tokens · heads) of each of ``requests`` have queries of ``itemsize`` bytes a value, and every split
    reads them. Each of the ``row_blocks`` that share a tile reads the ``cached_tokens`` of all requests once,
    ``entry_bytes`` each and a page number for it: one block for all rows at best, a block for each row at worst.
    """
    queries = index(splits) * index(requests) * index(rows) * (index(latent_dim) + index(rope_dim)) * index(itemsize)
    entries = index(row_blocks) * index(cached_tokens) * (index(entry_bytes) + PAGE_NUMBER)
    return Traffic(read=queries + entries, written=partials_bytes(splits, index(requests) * index(rows), latent_dim))


def combine_bytes(rows: int, latent_dim: int, itemsize: int, splits: int) -> Traffic:
    """Bytes of the merge of ``splits`` partial results for ``rows`` of all requests; each of them counts once."""
    return Traffic(
        read=partials_bytes(splits, rows, latent_dim),
        written=index(rows) * (index(latent_dim) * index(itemsize) + FLOAT32),
    )


def value_up_macs(new_tokens: int, num_heads: int, latent_dim: int, value_dim: int) -> int:
    """Multiply-adds of every head's mixed latents times its own w_vc (latent_dim, value_dim)."""
    return index(num_heads) * matmul_macs(new_tokens, latent_dim, value_dim)


def value_up_bytes(
    new_tokens: int, num_heads: int, latent_dim: int, value_dim: int, itemsize: int, splits: int
) -> Traffic:
    """Bytes of the same, fused with the merge of ``splits``: partial results and matrices once, outputs once."""
    weights = index(num_heads) * index(latent_dim) * index(value_dim) * index(itemsize)
    rows = index(new_tokens) * index(num_heads)
    return Traffic(
        read=partials_bytes(splits, rows, latent_dim) + weights,
        written=rows * index(value_dim) * index(itemsize),
    )


def write_cache_bytes(tokens: int, latent_dim: int, rope_dim: int, itemsize: int, entry_bytes: int) -> Traffic:
    """Bytes of writing ``tokens`` entries of ``entry_bytes``: each reads its raw latent and key, the norm's weight, all
    of ``itemsize`` bytes a value, its cosines and sines in float32 and its slot."""
    values = 2 * index(latent_dim) + index(rope_dim)
    each = values * index(itemsize) + index(rope_dim) * FLOAT32 + SLOT
    return Traffic(read=index(tokens) * each, written=index(tokens) * index(entry_bytes))


def expand_macs(cached_tokens: int, num_heads: int, latent_dim: int, nope_dim: int, value_dim: int) -> int:
    """Multiply-adds of every head's keys and values from the latents."""
    return index(num_heads) * matmul_macs(cached_tokens, latent_dim, index(nope_dim) + index(value_dim))


def expand_bytes(
    cached_tokens: int, num_heads: int, latent_dim: int, nope_dim: int, value_dim: int, itemsize: int
) -> Traffic:
    """Bytes of the same: each head reads the latents and its own rows of kv_b, and writes its keys and values."""
    width = index(nope_dim) + index(value_dim)
    return matmul_bytes(cached_tokens, latent_dim, width, itemsize, products=num_heads)


def seen_pairs(
    new_tokens: int, cached_tokens: int, first_position: int | None, block_new: int = 1, block_cached: int = 1
) -> int:
    """Pairs of a new and a cached token that causal attention works on, new token i seeing 0 … first_position + i; with
    None each sees all. Tiles of ``block_new`` × ``block_cached`` count whole where any of their pairs is seen."""
    pairs = 0
    for start in range(0, index(new_tokens), index(block_new)):
        stop = index(cached_tokens)
        if first_position is not None:
            stop = max(0, min(stop, index(first_position) + start + block_new))
        pairs += block_new * block_cached * -(-stop // block_cached)
    return pairs


def attend_macs(pairs: int, num_heads: int, nope_dim: int, rope_dim: int, value_dim: int) -> Attention:
    """Multiply-adds of ordinary attention on ``pairs`` of tokens, all heads."""
    return Attention(
        scores=matmul_macs(num_heads, index(nope_dim) + index(rope_dim), pairs),
        values=matmul_macs(num_heads, pairs, value_dim),
    )


def attend_bytes(
    new_tokens: int,
    cached_reads: int,
    num_heads: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    itemsize: int,
) -> Traffic:
    """Bytes of the same: queries once; for each head ``cached_reads`` cached tokens, counted again for every block of
    new tokens that reads them, as expanded key and value and shared rotary key; outputs, and an lse of 4 bytes."""
    key = index(nope_dim) + index(rope_dim)
    rows = index(new_tokens) * index(num_heads)
    return Traffic(
        read=index(itemsize) * (rows * key + index(num_heads) * index(cached_reads) * (key + index(value_dim))),
        written=rows * (index(itemsize) * index(value_dim) + FLOAT32),
    )
