"""How a learner's kernel is launched: its blocks are small, since the interpreter runs one program after the other."""

#: Heads, new tokens, cached tokens and features of a block.
BLOCK_H, BLOCK_S, BLOCK_T, BLOCK_N = 16, 16, 16, 16


def split(width: int) -> tuple[int, int]:
    """The latent and the rope part of a cache entry: the last ninth is rope, as in 512 + 64."""
    return width - width // 9, width // 9
