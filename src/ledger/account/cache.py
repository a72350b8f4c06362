"""What latent attention caches, in values and in bytes, what fits on a GPU, and where engines change their path.

Bytes are those of the entries alone: no page is rounded up, no MTP layer is counted, and no block table.
"""

import math
from collections.abc import Callable, Mapping
from operator import index
from typing import NamedTuple

from ledger.checks import check_counts
from ledger.models import Model

#: Values that share one fp32 scale in ``fp8_ds_mla``, and bytes of such a scale.
TILE = 128
SCALE_BYTES = 4


class CacheValues(NamedTuple):
    """Values cached for a token in one layer: the shared entry, and the expanded keys and values of all heads."""

    latent: int
    full: int

    @property
    def ratio(self) -> float:
        """How many times larger the expanded cache is."""
        return self.full / self.latent


class EntryBytes(NamedTuple):
    """Bytes of one cache entry: the latent's values, its scales, the rotary key."""

    latent: int
    scales: int
    rope: int

    @property
    def total(self) -> int:
        """Bytes of the entry."""
        return sum(self)


def _bf16(model: Model) -> EntryBytes:
    return EntryBytes(2 * model.latent_dim, 0, 2 * model.rope_dim)


def _fp8_ds(model: Model) -> EntryBytes:
    return EntryBytes(model.latent_dim, SCALE_BYTES * -(-model.latent_dim // TILE), 2 * model.rope_dim)


def _fp8_plain(model: Model) -> EntryBytes:
    return EntryBytes(model.latent_dim, 0, model.rope_dim)


_ENTRIES: Mapping[str, Callable[[Model], EntryBytes]] = {
    "bf16_mla": _bf16,
    "fp8_ds_mla": _fp8_ds,
    "fp8_plain_mla": _fp8_plain,
}

#: The layouts of a cache entry: all bf16; e4m3 latent with a scale for each 128 values and bf16 rope (FlashMLA's
#: README, vLLM's flashmla_sparse.py); all e4m3 under one scale for the whole cache.
CACHE_FORMATS: tuple[str, ...] = tuple(_ENTRIES)


def cache_values_per_token(model: Model) -> CacheValues:
    """Values that ``model`` caches for a token in one layer, and what the keys and values of all heads would be.

    A head's expanded key is nope + rope wide, since the shared rotary key is repeated in each.
    """
    return CacheValues(latent=model.cache_dim, full=model.num_heads * (model.qk_dim + model.value_dim))


def entry_bytes(model: Model, cache_format: str) -> EntryBytes:
    """The parts of one entry in ``cache_format``; a ValueError names the formats."""
    if cache_format not in CACHE_FORMATS:
        raise ValueError(f"no cache format {cache_format!r}; the choices are: {', '.join(CACHE_FORMATS)}")
    return _ENTRIES[cache_format](model)


def cache_bytes_per_token(model: Model, cache_format: str) -> int:
    """Bytes of a token's entry in one layer, without an indexer's key; a ValueError names the formats."""
    return entry_bytes(model, cache_format).total


def full_bytes_per_token(model: Model, tensor_parallel: int = 1, bytes_per_value: int = 2) -> int:
    """Bytes on each of ``tensor_parallel`` GPUs of a token's expanded keys and values in one layer: what MHA caches,
    and the Hugging Face reference. The heads are shared out as evenly as they divide. A ValueError for fewer GPUs than
    one."""
    check_counts(1, tensor_parallel=tensor_parallel)
    heads = -(-model.num_heads // tensor_parallel)
    return bytes_per_value * heads * (model.qk_dim + model.value_dim)


def indexer_bytes_per_token(model: Model) -> int:
    """Bytes that an indexer's key takes in a layer that owns one: index_dim e4m3 values and a scale; 0 without.

    Source: vLLM's indexer cache and DeepSeek-V3.2's inference code; the format of the latent changes nothing here.
    """
    return model.index_dim + SCALE_BYTES if model.num_indexer_layers else 0


def model_bytes_per_token(model: Model, cache_format: str) -> int:
    """Bytes of a token in the whole model: every MLA layer's entry, and the keys of the layers that own an indexer."""
    entries = model.num_mla_layers * cache_bytes_per_token(model, cache_format)
    return entries + model.num_indexer_layers * indexer_bytes_per_token(model)


def tokens_that_fit(free_bytes: float, model: Model, cache_format: str, tensor_parallel: int = 1) -> int:
    """Whole tokens whose cache one GPU holds in ``free_bytes``.

    ``tensor_parallel`` changes nothing: heads are shared out, and each GPU needs the whole entry for its heads. A
    ValueError names the formats, or the size that makes no sense.
    """
    check_counts(1, tensor_parallel=tensor_parallel)
    if not 0 < free_bytes < math.inf:
        raise ValueError(f"free_bytes is {free_bytes}; it must be positive and finite")
    return int(free_bytes // model_bytes_per_token(model, cache_format))


def requests_that_fit(
    free_bytes: float, cached_tokens: int, model: Model, cache_format: str, tensor_parallel: int = 1
) -> int:
    """Whole requests of ``cached_tokens`` each whose cache one GPU holds in ``free_bytes``; see ``tokens_that_fit``."""
    check_counts(1, cached_tokens=cached_tokens)
    return tokens_that_fit(free_bytes, model, cache_format, tensor_parallel) // index(cached_tokens)


#: Prefix tokens of a batch from which on SGLang materializes them in chunks.
SGLANG_PREFIX = 8192


class EngineRule(NamedTuple):
    """How an engine picks the path of a request, from its new and its cached tokens: ``"absorb"`` or
    ``"materialize"``."""

    name: str
    pick: Callable[[int, int], str]


def _by_new_tokens(threshold: int) -> Callable[[int, int], str]:
    """Absorb up to ``threshold`` new tokens."""
    return lambda new_tokens, cached_tokens: "absorb" if new_tokens <= threshold else "materialize"


def _by_cached_tokens(new_tokens: int, cached_tokens: int) -> str:
    """A decode absorbs; a prefill materializes without a prefix and from 8,192 tokens of it on."""
    if new_tokens == 1 or 0 < cached_tokens < SGLANG_PREFIX:
        return "absorb"
    return "materialize"


#: What engines do for a lone request at the time of writing. vLLM: ``reorder_batch_threshold`` of the backends in
#: ``v1/attention/backends/mla``; SGLang: ``attention_backend_handler.py`` (FlashAttention 3, FlashInfer, FlashMLA).
ENGINE_RULES: tuple[EngineRule, ...] = (
    EngineRule("vLLM, default", _by_new_tokens(1)),
    EngineRule("vLLM, FlashMLA", _by_new_tokens(128)),
    EngineRule("vLLM, FlashAttention 3", _by_new_tokens(512)),
    EngineRule("SGLang", _by_cached_tokens),
)
