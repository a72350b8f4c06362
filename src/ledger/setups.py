"""Records of the few numbers that a step of decoding needs: of a layer spread over GPUs, of native sparse attention.

``ledger.account.mtp.setup_for`` makes a ``Setup`` from a model and the GPUs that share its experts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What one GPU reads, computes and sends in one decoder layer of a model whose experts are spread over many.

    ``attention_bytes`` are the weights of attention, ``expert_bytes`` those of one expert; ``local_experts`` lie on the
    GPU, shared ones among them. A token is worked on by ``active_experts``, shared ones among them, at ``expert_flops``
    each, and is sent to ``experts_per_token`` and back, ``token_bytes`` for both ways. Each of its (query, key) pairs
    takes ``pair_flops``, each cached token of a request ``cache_bytes_per_token``. ``layers`` are alike.
    """

    name: str
    attention_bytes: float
    expert_bytes: float
    expert_flops: float
    local_experts: int
    active_experts: int
    experts_per_token: int
    layers: int
    cache_bytes_per_token: float
    pair_flops: float
    token_bytes: float


#: DeepSeek-V3 in round numbers: FP8 weights, bf16 cache, two routed experts and the shared one on each GPU.
ROUNDED = Setup(
    name="DeepSeek-V3, rounded",
    attention_bytes=187e6,
    expert_bytes=44e6,
    expert_flops=88e6,
    local_experts=3,
    active_experts=9,
    experts_per_token=8,
    layers=61,
    cache_bytes_per_token=1152,
    pair_flops=278_528,
    token_bytes=21_728,
)


@dataclass(frozen=True, kw_only=True)
class NsaConfig:
    """The sizes of native sparse attention, in tokens and blocks of tokens.

    The compressed branch takes the mean of every ``block`` tokens, ``stride`` apart. The selected branch reads
    ``count`` blocks of ``selection_block`` tokens, among them always the first ``initial`` and the last ``local`` ones.
    The window branch reads the last ``window`` tokens. ``scale`` multiplies the products of queries and keys.
    """

    block: int
    stride: int
    selection_block: int
    count: int
    initial: int
    local: int
    window: int
    scale: float


#: The sizes of the NSA paper (arXiv 2502.11089), whose keys are 192 wide.
NSA_PAPER = NsaConfig(
    block=32, stride=16, selection_block=64, count=16, initial=1, local=2, window=512, scale=192**-0.5
)
