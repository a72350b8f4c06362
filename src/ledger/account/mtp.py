"""What drafting and verifying cost and bring: expected tokens of a step, its time, the gain, and when there is none.

A step verifies ``num_draft_tokens`` drafts of each request and makes one token more. What a request needs once (the
weights, its cache) is read once for all its rows; what each token needs (arithmetic, its way to the experts) grows with
the rows. ``step_seconds`` is the plain model of that. ``Refined`` adds what the plain one leaves out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import index, mul
from typing import NamedTuple

from ledger.account.attention import decode_absorbed_macs
from ledger.account.cache import cache_bytes_per_token
from ledger.account.experts import attention_params, expert_params, token_bytes
from ledger.account.roofline import arithmetic_intensity
from ledger.checks import check_counts
from ledger.machines import Machine
from ledger.models import Model
from ledger.setups import Setup

#: Two drafts count as one gain where they differ by less than this share: the smaller number of them is taken.
TIE = 1e-12


def pair_flops(model: Model, num_heads: int | None = None) -> int:
    """FLOP of absorbed attention for a query token and a cached one in one layer, of all heads or of ``num_heads``."""
    heads = model.num_heads if num_heads is None else index(num_heads)
    return 2 * decode_absorbed_macs(1, heads, model.latent_dim, model.rope_dim).total


def setup_for(model: Model, num_ranks: int, redundant: int = 0, cache_format: str = "bf16_mla") -> Setup:
    """The exact record of ``model`` whose routed experts, and ``redundant`` copies of some, go onto ``num_ranks`` GPUs.

    Weights are FP8 (a byte each), their scales left out. Attention and the shared experts are on every GPU. Each layer
    counts as one of latent attention with experts, although DeepSeek-V3's first three have none. ValueErrors for a
    dense model, and for GPUs that cannot hold the same number of experts each.
    """
    each = expert_params(model)
    check_counts(1, num_ranks=num_ranks)
    check_counts(redundant=redundant)
    copies = model.num_experts + redundant
    if copies % num_ranks:
        raise ValueError(f"{copies} experts do not go evenly onto {num_ranks} GPUs; change num_ranks or redundant")
    return Setup(
        name=f"{model.name}, experts on {num_ranks} GPUs",
        attention_bytes=attention_params(model),
        expert_bytes=each,
        expert_flops=2 * each,
        local_experts=copies // num_ranks + model.num_shared_experts,
        active_experts=model.experts_per_token + model.num_shared_experts,
        experts_per_token=model.experts_per_token,
        layers=model.num_mla_layers,
        cache_bytes_per_token=cache_bytes_per_token(model, cache_format),
        pair_flops=pair_flops(model),
        token_bytes=token_bytes(model.hidden_dim).total,
    )


def _taken(acceptance: Sequence[float], num_draft_tokens: int) -> Sequence[float]:
    """The first ``num_draft_tokens`` of ``acceptance``; a ValueError where there are fewer."""
    check_counts(num_draft_tokens=num_draft_tokens)
    if len(acceptance) < num_draft_tokens:
        raise ValueError(
            f"acceptance has {len(acceptance)} probabilities for num_draft_tokens {num_draft_tokens}; "
            "give one for each draft"
        )
    return acceptance[:num_draft_tokens]


def expected_advance(acceptance: Sequence[float]) -> float:
    """Expected tokens that a step adds: 1 + p1 + p1·p2 + …, with p_i the probability that draft i is accepted where all
    before it were. An empty list gives 1."""
    return 1.0 + float(sum(accumulate(acceptance, mul)))


class Layer(NamedTuple):
    """Seconds of the parts of one layer, each the longer of its reading and its arithmetic, and of its all-to-all."""

    attention_memory: float
    attention_compute: float
    expert_memory: float
    expert_compute: float
    network: float

    @property
    def compute(self) -> float:
        """Attention and then the experts."""
        memory, compute = self[:4:2], self[1:4:2]
        return sum(max(pair) for pair in zip(memory, compute, strict=True))

    @property
    def seconds(self) -> float:
        """The all-to-all hides behind the rest, or the rest behind it."""
        return max(self.compute, self.network)

    @property
    def bound(self) -> str:
        """What the larger part of the layer waits for: ``"network"``, ``"memory"`` or ``"compute"``. Ties go to the
        first of these."""
        if self.network >= self.compute:
            return "network"
        waits = {"memory": 0.0, "compute": 0.0}
        for memory, compute in (self[:2], self[2:4]):
            waits["memory" if memory >= compute else "compute"] += max(memory, compute)
        return max(waits, key=waits.get)


def layer_times(requests: float, tokens: float, cached_tokens: float, machine: Machine, setup: Setup) -> Layer:
    """One layer on one GPU: ``requests`` of ``cached_tokens`` each, ``tokens`` of all of them together.

    Attention computes in bf16, experts in FP8. A ValueError names the formats of a machine without them.
    """
    return Layer(
        attention_memory=(setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token)
        / machine.bandwidth,
        attention_compute=tokens * cached_tokens * setup.pair_flops / machine.rate("bf16"),
        expert_memory=setup.local_experts * setup.expert_bytes / machine.bandwidth,
        expert_compute=tokens * setup.active_experts * setup.expert_flops / machine.rate("fp8"),
        network=tokens * setup.experts_per_token * setup.token_bytes / machine.network,
    )


def step_seconds(requests: float, num_draft_tokens: int, cached_tokens: float, machine: Machine, setup: Setup) -> float:
    """Seconds of a whole step on one GPU: all layers on num_draft_tokens + 1 tokens of each request, and
    num_draft_tokens passes of the one-layer drafter on one token of each."""
    check_counts(num_draft_tokens=num_draft_tokens)
    verify = layer_times(requests, requests * (num_draft_tokens + 1), cached_tokens, machine, setup)
    draft = layer_times(requests, requests, cached_tokens, machine, setup)
    return setup.layers * verify.seconds + num_draft_tokens * draft.seconds


def mtp_speedup(
    requests: float,
    num_draft_tokens: int,
    cached_tokens: float,
    acceptance: Sequence[float],
    machine: Machine,
    setup: Setup,
) -> float:
    """Tokens a second with drafts over tokens a second without: expected advance over the ratio of the steps.

    ``acceptance`` is cut to num_draft_tokens; a ValueError where it is shorter.
    """
    advance = expected_advance(_taken(acceptance, num_draft_tokens))
    plain, drafted = (step_seconds(requests, k, cached_tokens, machine, setup) for k in (0, num_draft_tokens))
    return advance * plain / drafted


def break_even_acceptance(step_ratio: float) -> float:
    """The acceptance at which one draft neither gains nor loses, where it makes a step ``step_ratio`` times as long:
    1 + p = ratio. Above 1 it never pays; below 0 it always does."""
    return step_ratio - 1.0


def best_draft_count(
    requests: float, cached_tokens: float, acceptance: Sequence[float], machine: Machine, setup: Setup
) -> int:
    """The number of drafts, from 0 to those that ``acceptance`` has, with the largest gain; the smallest wins a tie."""
    best, gain = 0, 1.0
    for k in range(1, len(acceptance) + 1):
        found = mtp_speedup(requests, k, cached_tokens, acceptance, machine, setup)
        if found > gain * (1 + TIE):
            best, gain = k, found
    return best


def verify_rows_cost(model: Model, num_draft_tokens: int, cache_format: str, machine: Machine, dtype: str) -> float:
    """Times that absorbed attention takes with num_draft_tokens + 1 rows of a request, against one row, in a cache so
    long that nothing else counts. ValueErrors name the cache formats and the machine's dtypes.

    With intensity the FLOP of one row for each cached byte: max(ridge, (k + 1) · intensity) / max(ridge, intensity).
    """
    check_counts(num_draft_tokens=num_draft_tokens)
    ridge, entry = machine.ridge(dtype), cache_bytes_per_token(model, cache_format)
    one, rows = (
        arithmetic_intensity(model.num_heads, new, model.latent_dim, model.rope_dim, entry)
        for new in (1, num_draft_tokens + 1)
    )
    return max(ridge, rows) / max(ridge, one)


def experts_touched(held: float, num_experts: int, experts_per_token: int, tokens: float) -> float:
    """How many of ``held`` experts at least one of ``tokens`` is expected to choose, each ``experts_per_token`` of
    ``num_experts``, all alike and independent."""
    return held * (1 - (1 - experts_per_token / num_experts) ** tokens)


@dataclass(frozen=True, kw_only=True)
class Refined:
    """A step with what the plain model leaves out; every refinement is off at its default.

    * ``projections``: the projections' arithmetic counts (FP8), and they and attention are two kernels, each of which
      waits for its own reading or its own arithmetic.
    * ``drafter_bytes`` and ``head_bytes``: eh_proj is read in each drafting pass, the LM head in that and in the step.
    * ``num_experts`` (0 is off): only experts that a token chose are read. They meet the tokens of ``group`` GPUs.
    * ``floor``: seconds of a layer that no batch is small enough to save; ``host``: seconds between two steps.
    * ``overlap``: ``"free"`` hides the all-to-all as the plain model does. ``"halves"`` makes two half batches for
      that, each of which reads the weights; ``"none"`` adds it; ``"best"`` is the shorter of these two.
    """

    setup: Setup
    projections: bool = False
    drafter_bytes: float = 0.0
    head_bytes: float = 0.0
    num_experts: int = 0
    group: int = 1
    floor: float = 0.0
    host: float = 0.0
    overlap: str = "free"

    def _work(self, requests: float, tokens: float, cached_tokens: float, machine: Machine) -> tuple[float, float]:
        """Seconds of a layer's kernels and of its all-to-all."""
        setup, plain = self.setup, layer_times(requests, tokens, cached_tokens, machine, self.setup)
        attention = max(plain[:2])
        if self.projections:
            # A weight of one byte takes part in one multiply-add a token.
            weights = setup.attention_bytes / machine.bandwidth
            attention = max(weights, 2 * tokens * setup.attention_bytes / machine.rate("fp8"))
            attention += max(plain.attention_memory - weights, plain.attention_compute)
        reading = plain.expert_memory
        if self.num_experts:
            shared = setup.active_experts - setup.experts_per_token
            held = setup.local_experts - shared
            touched = experts_touched(held, self.num_experts, setup.experts_per_token, tokens * self.group)
            reading *= (touched + shared) / setup.local_experts
        return attention + max(reading, plain.expert_compute), plain.network

    def layer(self, requests: float, tokens: float, cached_tokens: float, machine: Machine) -> float:
        """Seconds of one layer; see ``layer_times``. A ValueError names the ways to overlap."""
        work, network = self._work(requests, tokens, cached_tokens, machine)
        half, _ = self._work(requests / 2, tokens / 2, cached_tokens, machine)
        ways = {"free": max(work, network), "halves": max(2 * half, network), "none": work + network}
        ways["best"] = min(ways["halves"], ways["none"])
        if self.overlap not in ways:
            raise ValueError(f"no overlap {self.overlap!r}; the choices are: {', '.join(ways)}")
        return self.floor + ways[self.overlap]

    def step(self, requests: float, num_draft_tokens: int, cached_tokens: float, machine: Machine) -> float:
        """Seconds of a whole step; see ``step_seconds``."""
        check_counts(num_draft_tokens=num_draft_tokens)
        verify = self.layer(requests, requests * (num_draft_tokens + 1), cached_tokens, machine)
        draft = self.layer(requests, requests, cached_tokens, machine)
        passes = (1 + num_draft_tokens) * self.head_bytes + num_draft_tokens * self.drafter_bytes
        read = passes / machine.bandwidth
        return self.host + read + self.setup.layers * verify + num_draft_tokens * draft

    def speedup(
        self,
        requests: float,
        num_draft_tokens: int,
        cached_tokens: float,
        acceptance: Sequence[float],
        machine: Machine,
    ) -> float:
        """The gain; see ``mtp_speedup``."""
        advance = expected_advance(_taken(acceptance, num_draft_tokens))
        plain, drafted = (self.step(requests, k, cached_tokens, machine) for k in (0, num_draft_tokens))
        return advance * plain / drafted


def refined(model: Model, setup: Setup, group: int, floor: float, tensor_parallel: int = 1, **changes) -> Refined:
    """Every refinement on, for experts that meet the tokens of ``group`` GPUs.

    eh_proj (2 · hidden, hidden) and the LM head (hidden, vocabulary) are bf16. ``tensor_parallel`` GPUs share each
    layer, the experts' insides and the head: each has a share of the heads, and the whole cache. ``changes`` go to
    ``Refined``.
    """
    shares = {"attention_bytes", "expert_bytes", "expert_flops", "pair_flops"}
    parted = replace(setup, **{name: getattr(setup, name) / tensor_parallel for name in shares})
    made = Refined(
        setup=parted,
        projections=True,
        drafter_bytes=2 * 2 * model.hidden_dim**2 / tensor_parallel,
        head_bytes=2 * model.hidden_dim * model.vocab_size / tensor_parallel,
        num_experts=model.num_experts,
        group=group,
        floor=floor,
        overlap="best",
    )
    return replace(made, **changes)


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A decoder without experts that lies whole on one GPU, in bf16: what a step of it takes.

    ``cache_values`` are cached for a token in one layer, and a (query, key) pair takes ``pair_macs`` multiply-adds.
    """

    name: str
    hidden_dim: int
    ffn_dim: int
    layers: int
    attention_params: int
    cache_values: int
    pair_macs: int
    source: str

    @property
    def layer_params(self) -> int:
        """Weights of one layer: attention's projections, gate, up and down."""
        return self.attention_params + 3 * self.hidden_dim * self.ffn_dim

    def layer(self, requests: float, tokens: float, cached_tokens: float, machine: Machine) -> float:
        """Seconds of one layer: the products with weights, then attention, each the longer of its two bounds."""
        rate = machine.rate("bf16")
        products = max(2 * self.layer_params / machine.bandwidth, 2 * tokens * self.layer_params / rate)
        read = 2 * requests * cached_tokens * self.cache_values / machine.bandwidth
        return products + max(read, 2 * tokens * cached_tokens * self.pair_macs / rate)

    def speedup(
        self,
        requests: float,
        num_draft_tokens: int,
        cached_tokens: float,
        acceptance: Sequence[float],
        machine: Machine,
    ) -> float:
        """The gain of drafts by one more such layer; see ``mtp_speedup``."""
        advance = expected_advance(_taken(acceptance, num_draft_tokens))
        plain = self.layer(requests, requests, cached_tokens, machine)
        verify = self.layer(requests, requests * (num_draft_tokens + 1), cached_tokens, machine)
        return advance * self.layers * plain / (self.layers * verify + num_draft_tokens * plain)


#: A dense model of 7B with a key and a value for each of 32 heads of 128.
LLAMA_2_7B = Dense(
    name="Llama 2 7B",
    hidden_dim=4096,
    ffn_dim=11008,
    layers=32,
    attention_params=4 * 4096 * 4096,
    cache_values=2 * 32 * 128,
    pair_macs=2 * 32 * 128,
    source="Hugging Face config.json of meta-llama/Llama-2-7b-hf",
)
