"""A layer of experts whose tokens travel: FP8 out, bf16 back, and the weighted sum at home. torch is needed.

Rank r of a world has the experts r · experts_per_rank and on. A token goes to each of its experts as a copy of its own:
e4m3 codes and an fp32 scale for each started block of values, as DeepEP sends them, and its expert's number apart.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ledger.account.experts import SCALE_BLOCK
from ledger.parallel.world import World

if TYPE_CHECKING:
    import torch

Expert = Callable[["torch.Tensor"], "torch.Tensor"]

#: The largest e4m3 number.
_E4M3_MAX = 448.0


def pack_dispatch(tokens: "torch.Tensor", block: int = SCALE_BLOCK) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Tokens (tokens, hidden) as they travel: e4m3 codes of that shape, and fp32 scales (tokens, started blocks), the
    largest magnitude of a block / 448 (1 for a block of zeros)."""
    import torch

    count, hidden = tokens.shape
    blocks = -(-hidden // block)
    padded = torch.nn.functional.pad(tokens.float(), (0, blocks * block - hidden)).view(count, blocks, block)
    largest = padded.abs().amax(dim=2) if padded.numel() else padded.new_zeros(count, blocks)
    scales = torch.where(largest > 0, largest / _E4M3_MAX, 1.0)
    codes = (padded / scales[..., None]).to(torch.float8_e4m3fn)
    return codes.view(count, blocks * block)[:, :hidden].contiguous(), scales


def unpack_dispatch(codes: "torch.Tensor", scales: "torch.Tensor", block: int = SCALE_BLOCK) -> "torch.Tensor":
    """What an expert's rank reads of packed tokens: float32 (tokens, hidden)."""
    return codes.float() * scales.repeat_interleave(block, dim=1)[:, : codes.shape[1]]


def moe_alone(
    tokens: "torch.Tensor",
    expert_ids: "torch.Tensor",
    weights: "torch.Tensor",
    experts: Sequence[Expert],
    packed: bool = True,
) -> "torch.Tensor":
    """The layer in one process: tokens (tokens, hidden), expert_ids and weights (tokens, top_k) -> (tokens, hidden).

    Tokens and outputs are rounded as if they travelled; without ``packed`` they are not.
    """
    seen = unpack_dispatch(*pack_dispatch(tokens)) if packed else tokens
    copies = seen.repeat_interleave(expert_ids.shape[1], dim=0)
    outputs = run_experts(copies, expert_ids.flatten(), experts)
    return weighted_sum(_rounded(outputs, packed), weights, tokens)


def moe_layer(
    world: World,
    tokens: "torch.Tensor",
    expert_ids: "torch.Tensor",
    weights: "torch.Tensor",
    experts: Sequence[Expert],
    packed: bool = True,
) -> "torch.Tensor":
    """The layer on this rank: its ``tokens`` (tokens, hidden), their expert_ids and weights (tokens, top_k), and the
    rank's own ``experts``, as many as every other rank has -> (tokens, hidden).

    What travels stands in ``world.sent``: ``ids`` (int64); ``codes`` and ``scales``, or ``tokens`` without ``packed``;
    ``outputs``, in bf16, or as they are without it. A rank without tokens takes part in all of them.
    """
    import torch

    per_rank, top_k = len(experts), expert_ids.shape[1]
    owner = expert_ids.flatten() // per_rank
    copies = [(owner == rank).nonzero().flatten() for rank in range(world.size)]  # the copies for each rank
    ids = world.all_to_all([expert_ids.flatten()[chosen] for chosen in copies], "ids")
    if packed:
        codes, scales = pack_dispatch(tokens)
        codes = world.all_to_all([codes[chosen // top_k] for chosen in copies], "codes")
        scales = world.all_to_all([scales[chosen // top_k] for chosen in copies], "scales")
        arrived = [unpack_dispatch(*pair) for pair in zip(codes, scales, strict=True)]
    else:
        arrived = world.all_to_all([tokens[chosen // top_k] for chosen in copies], "tokens")
    outputs = run_experts(torch.cat(arrived), torch.cat(ids) - world.rank * per_rank, experts)
    back = list(_rounded(outputs, packed).split([len(part) for part in ids]))
    home = world.all_to_all(back, "outputs")
    placed = torch.empty(expert_ids.numel(), tokens.shape[1], dtype=home[0].dtype, device=tokens.device)
    placed[torch.cat(copies)] = torch.cat(home)
    return weighted_sum(placed, weights, tokens)


def run_experts(rows: "torch.Tensor", numbers: "torch.Tensor", experts: Sequence[Expert]) -> "torch.Tensor":
    """Each row (rows, hidden) through the expert of its number, each expert once, on all its rows in their order."""
    outputs = rows.new_zeros(rows.shape)
    for number, expert in enumerate(experts):
        mine = (numbers == number).nonzero().flatten()
        if len(mine):
            outputs[mine] = expert(rows[mine])
    return outputs


def weighted_sum(outputs: "torch.Tensor", weights: "torch.Tensor", tokens: "torch.Tensor") -> "torch.Tensor":
    """The outputs (tokens · top_k, hidden) of each token's experts, weighted and added in the order of its choices, in
    float32 or wider -> (tokens, hidden) in the dtype of ``tokens``."""
    import torch

    wide = torch.promote_types(tokens.dtype, torch.float32)
    by_choice = outputs.view(*weights.shape, tokens.shape[1]).to(wide)
    total = torch.zeros_like(tokens, dtype=wide)
    for choice in range(weights.shape[1]):
        total += weights[:, choice, None].to(wide) * by_choice[:, choice]
    return total.to(tokens.dtype)


def make_expert(number: int, hidden: int, width: int, dtype: "torch.dtype | None" = None) -> Expert:
    """Expert ``number``: down(silu(x · gate) · (x · up)), with weights that its number alone decides, so that every
    process makes the same. ``width`` is its inner size; float32 unless ``dtype`` says otherwise."""
    import torch

    drawn = torch.Generator().manual_seed(1000 + number)
    gate, up, down = (
        (torch.randn(shape, generator=drawn, dtype=torch.float64) / shape[0] ** 0.5).to(dtype or torch.float32)
        for shape in ((hidden, width), (hidden, width), (width, hidden))
    )

    def expert(rows: "torch.Tensor") -> "torch.Tensor":
        on = [weight.to(rows.device) for weight in (gate, up, down)]
        return (torch.nn.functional.silu(rows @ on[0]) * (rows @ on[1])) @ on[2]

    return expert


def _rounded(outputs: "torch.Tensor", packed: bool) -> "torch.Tensor":
    return outputs.bfloat16() if packed else outputs
