"""A paged cache of latents and shared keys, in 16 bits or in the FP8 layout of 656 bytes an entry (DeepSeek-V3 widths).

The FP8 layout is FlashMLA's: the latent's e4m3 codes, one float32 scale for each started 128 of them, the rope half in
bf16, one after the other. All three are views of the same memory.
"""

from dataclasses import dataclass

from ledger.kernels.interpret.mode import DEVICE, torch

#: Latents that share a scale.
TILE = 128
FORMATS = ("bf16_mla", "fp8_ds_mla")


@dataclass(frozen=True)
class PagedCache:
    """``pages``: (num_pages, page_size, latent_dim + rope_dim) of a float dtype, or (…, bytes of an entry) of uint8."""

    pages: torch.Tensor
    latent_dim: int
    rope_dim: int

    @classmethod
    def empty(
        cls,
        num_pages: int,
        page_size: int,
        latent_dim: int,
        rope_dim: int,
        cache_format: str = "bf16_mla",
        dtype: torch.dtype = torch.bfloat16,
    ) -> "PagedCache":
        """A cache whose memory is not yet written; ``dtype`` is that of ``bf16_mla``, bf16 unless said.

        Raises ValueError for an unknown format, and for widths that FP8's layout cannot align.
        """
        if cache_format not in FORMATS:
            raise ValueError(f"no cache format {cache_format!r}; the choices are: {', '.join(FORMATS)}")
        if cache_format == "bf16_mla":
            width = latent_dim + rope_dim
        else:
            if latent_dim % 4:
                raise ValueError(f"latent_dim is {latent_dim}; the scales behind the codes need a multiple of 4")
            if rope_dim % 2:
                raise ValueError(f"rope_dim is {rope_dim}; it must be even")
            width, dtype = latent_dim + 4 * -(-latent_dim // TILE) + 2 * rope_dim, torch.uint8
        return cls(torch.empty((num_pages, page_size, width), dtype=dtype, device=DEVICE), latent_dim, rope_dim)

    @property
    def fp8(self) -> bool:
        """Whether the latents are e4m3 codes."""
        return self.pages.dtype == torch.uint8

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return self.pages.shape[1]

    @property
    def latent(self) -> torch.Tensor:
        """(num_pages, page_size, latent_dim): latents, or their codes."""
        return self.pages[..., : self.latent_dim]

    @property
    def scales(self) -> torch.Tensor:
        """(num_pages, page_size, tiles) float32: the scales of the codes. Without FP8 a view that nothing reads."""
        if not self.fp8:
            return self.pages
        tiles = -(-self.latent_dim // TILE)
        return self.pages[..., self.latent_dim : self.latent_dim + 4 * tiles].view(torch.float32)

    @property
    def rope(self) -> torch.Tensor:
        """(num_pages, page_size, rope_dim): the rotated keys, bf16 beside FP8 latents."""
        if not self.fp8:
            return self.pages[..., self.latent_dim :]
        return self.pages[..., self.pages.shape[2] - 2 * self.rope_dim :].view(torch.bfloat16)

    def entries(self) -> torch.Tensor:
        """Every entry as (num_pages, page_size, latent_dim + rope_dim) float32, as the kernels read it."""
        latent = self.latent
        if self.fp8:
            scales = self.scales.repeat_interleave(TILE, dim=-1)[..., : self.latent_dim]
            latent = latent.view(torch.float8_e4m3fn).float() * scales
        return torch.cat([latent.float(), self.rope.float()], dim=-1)


@dataclass(frozen=True)
class IndexCache:
    """``pages``: (num_pages, page_size, index_dim + 4) uint8. A page holds the e4m3 codes of its keys one after the
    other, and behind them their float32 scales, as engines lay it out: so codes lie at multiples of 16 bytes.
    """

    pages: torch.Tensor

    @classmethod
    def empty(cls, num_pages: int, page_size: int, index_dim: int = 128) -> "IndexCache":
        """A cache whose memory is not yet written. Raises ValueError for a width that its scales cannot follow."""
        if index_dim % 4:
            raise ValueError(f"index_dim is {index_dim}; the scales behind the codes need a multiple of 4")
        return cls(torch.empty((num_pages, page_size, index_dim + 4), dtype=torch.uint8, device=DEVICE))

    @property
    def page_size(self) -> int:
        """Keys of a page."""
        return self.pages.shape[1]

    @property
    def index_dim(self) -> int:
        """Codes of a key."""
        return self.pages.shape[2] - 4

    @property
    def codes(self) -> torch.Tensor:
        """(num_pages, page_size, index_dim) uint8."""
        shape = self.page_size, self.index_dim
        return self.pages.flatten(1)[:, : self.page_size * self.index_dim].unflatten(1, shape)

    @property
    def scales(self) -> torch.Tensor:
        """(num_pages, page_size) float32."""
        return self.pages.flatten(1)[:, self.page_size * self.index_dim :].view(torch.float32)

    def write(self, keys: torch.Tensor, slots: torch.Tensor) -> None:
        """Quantize keys (tokens, index_dim) into ``slots`` (tokens,), page · page_size + place, −1 to leave one out."""
        kept = slots >= 0
        codes, scales = quantize_index(keys[kept])
        page, place = slots[kept].long() // self.page_size, slots[kept].long() % self.page_size
        self.codes[page, place] = codes
        self.scales[page, place] = scales


def quantize_index(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The indexer's queries or keys (…, index_dim) as e4m3 codes, uint8, and a scale for each row (…) float32: the
    least power of two under which nothing saturates, so that dividing by it loses nothing."""
    mantissa, exponent = torch.frexp(x.float().abs().amax(-1).clamp(min=1e-4) / 448)
    scales = torch.ldexp(torch.ones_like(mantissa), exponent - (mantissa == 0.5).int())
    codes = (x.float() / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.view(torch.uint8), scales
