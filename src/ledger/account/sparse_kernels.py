"""What the sparse kernels of ``ledger.kernels.gpu`` move and multiply, by formula.

As in ``ledger.account.kernels``: bytes are those of the tensors' own values, what a kernel reads again for each block
is a factor here, and lengths, of which each program reads one or two, are left out.
"""

from operator import index

from ledger.account.attention import Attention, Traffic, matmul_macs
from ledger.account.kernels import FLOAT32, PAGE_NUMBER
from ledger.account.values import partials_bytes

#: Bytes of an index key's scale, of an index in a list and of a count.
SCALE, INDEX, COUNT = 4, 4, 4
#: Passes over a row that find its topk-th largest key, 8 bits each, and the digits that a pass tells apart.
PASSES, DIGITS = 4, 256


def index_scores_macs(pairs: int, index_heads: int, index_dim: int) -> int:
    """Multiply-adds of the indexer's products on ``pairs`` of a query row and a key; weights and their sum left out."""
    return matmul_macs(index_heads, index_dim, pairs)


def index_scores_bytes(cached_tokens: int, scores: int, index_heads: int, index_dim: int, row_reads: int) -> Traffic:
    """Bytes of the same: each of ``cached_tokens`` keys once for all new tokens of its request, with its scale and a
    page number; the codes and weights of a query row as often as a block of keys meets it, ``row_reads`` in all; and
    ``scores`` written, tails included."""
    keys = index(cached_tokens) * (index(index_dim) + SCALE + PAGE_NUMBER)
    rows = index(row_reads) * index(index_heads) * (index(index_dim) + FLOAT32)
    return Traffic(read=keys + rows, written=index(scores) * FLOAT32)


def select_topk_bytes(seen: int, topk: int, parts: int = 1) -> Traffic:
    """Bytes of the selection from one row of ``seen`` scores, read in ``parts``: once a pass and once to pick, and in
    each part the counts of all parts from the passes before. A row that fits in ``topk`` is not read."""
    indices = index(topk) * INDEX
    if seen <= topk:
        return Traffic(read=0, written=indices)
    counts = index(parts) * DIGITS * COUNT
    earlier = sum(range(PASSES + 1))
    return Traffic(
        read=(PASSES + 1) * index(seen) * FLOAT32 + parts * earlier * counts, written=PASSES * counts + indices
    )


def sparse_decode_bytes(
    picks: int,
    listed: int,
    rows: int,
    latent_dim: int,
    rope_dim: int,
    itemsize: int,
    entry_bytes: int,
    head_blocks: int = 1,
    splits: int = 1,
) -> Traffic:
    """Bytes of decoding over ``picks``, the indices of all new tokens that name a token, out of ``listed`` with those
    that name none; up to the partial results of its ``splits``.

    ``rows`` (new tokens of all requests · heads) have queries of ``itemsize`` bytes a value, and every split reads
    them. Each of the ``head_blocks`` of a new token reads its list and the entries in it, ``entry_bytes`` each and a
    page number. New tokens share nothing: each has its own list.
    """
    queries = index(splits) * index(rows) * (index(latent_dim) + index(rope_dim)) * index(itemsize)
    entries = index(picks) * (index(entry_bytes) + PAGE_NUMBER) + index(listed) * INDEX
    return Traffic(read=queries + index(head_blocks) * entries, written=partials_bytes(splits, rows, latent_dim))


def compress_bytes(full: int, made: int, groups: int, dim: int, block: int, itemsize: int) -> Traffic:
    """Bytes of ``made`` compressed keys (or values), ``full`` of them with ``block`` tokens behind them. They
    overlap, and each reads all of its tokens."""
    each = index(groups) * index(dim) * index(itemsize)
    return Traffic(read=index(full) * index(block) * each, written=index(made) * each)


def block_scores_macs(pairs: int, num_heads: int, dim: int) -> int:
    """Multiply-adds of the compressed branch's scores made anew, on ``pairs`` of a new token and a compressed key, one
    for each selection block that the key overlaps."""
    return matmul_macs(num_heads, dim, pairs)


def block_scores_bytes(
    pairs: int, scores: int, rows: int, groups: int, dim: int, itemsize: int, row_reads: int = 1
) -> Traffic:
    """Bytes of the same: a compressed key of each group for every pair; the query and the lse of ``rows`` (new tokens ·
    heads), ``row_reads`` times each; ``scores`` written."""
    keys = index(pairs) * index(groups) * index(dim) * index(itemsize)
    queries = index(row_reads) * index(rows) * (index(dim) * index(itemsize) + FLOAT32)
    return Traffic(read=keys + queries, written=index(scores) * FLOAT32)


def pick_blocks_bytes(visible: int, picked: int) -> Traffic:
    """Bytes of the choice out of ``visible`` scores, of all rows and groups: each once, and ``picked`` indices."""
    return Traffic(read=index(visible) * FLOAT32, written=index(picked) * INDEX)


def attend_group_macs(pairs: int, num_heads: int, dim: int, value_dim: int) -> Attention:
    """Multiply-adds of one branch on ``pairs`` of a new token and a token that its group attends to."""
    return Attention(scores=matmul_macs(num_heads, dim, pairs), values=matmul_macs(num_heads, pairs, value_dim))


def attend_group_bytes(
    pairs: int, rows: int, groups: int, dim: int, value_dim: int, itemsize: int, listed: int = 0, splits: int = 1
) -> Traffic:
    """Bytes of the same, up to the partial results of its ``splits``: for every pair a key and a value of each group,
    once for all its heads; a query for each of ``rows`` (new tokens · heads) in every split; ``listed`` reads of a
    block's number."""
    tokens = index(pairs) * index(groups) * (index(dim) + index(value_dim)) * index(itemsize)
    queries = index(splits) * index(rows) * index(dim) * index(itemsize)
    return Traffic(read=tokens + queries + index(listed) * INDEX, written=partials_bytes(splits, rows, value_dim))
