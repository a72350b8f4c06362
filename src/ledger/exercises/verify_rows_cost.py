"""Chapter 8: what more rows cost attention."""

from dataclasses import replace

from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import drawn
from ledger.machines import MACHINES, machine
from ledger.models import DEEPSEEK_V3, GLM_52, KIMI_K2, MINICPM3

SLOW = replace(machine("H100"), name="by hand", bandwidth=2.0, flops={"bf16": 12.0, "fp8": 20.0})
SMALL = replace(DEEPSEEK_V3, name="by hand", num_heads=2, latent_dim=3, rope_dim=1)
#: A latent that does not fill its last tile.
ODD = replace(GLM_52, name="odd widths", num_heads=24, latent_dim=386, rope_dim=30)


def make(rng, dtype):
    return given(SMALL, 1, "bf16_mla", SLOW, "bf16")(rng, dtype)


def given(shape, num_draft_tokens, cache_format, device, precision):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "model": shape,
        "num_draft_tokens": num_draft_tokens,
        "cache_format": cache_format,
        "machine": device,
        "dtype": precision,
    }


def heads(count, num_draft_tokens, cache_format="bf16_mla", device="H200", precision="bf16"):
    """A maker of DeepSeek-V3 with ``count`` heads on a GPU."""
    return given(replace(DEEPSEEK_V3, num_heads=count), num_draft_tokens, cache_format, machine(device), precision)


def make_drawn(rng, dtype):
    """Between 0.4 and 0.9 of the ridge with one row, so that both bounds count."""
    sizes = drawn(rng, latent_dim=(200, 900), rope_dim=(20, 100), num_heads=(40, 130))
    shape = replace(DEEPSEEK_V3, name="drawn", **sizes)
    intensity = sizes["num_heads"] * (2 * sizes["latent_dim"] + sizes["rope_dim"])
    intensity /= sizes["latent_dim"] + sizes["rope_dim"]
    bandwidth = float(rng.uniform(1e12, 9e12))
    bf16 = intensity * bandwidth / float(rng.uniform(0.4, 0.9))
    device = replace(MACHINES["H200"], name="drawn", bandwidth=bandwidth, flops={"bf16": bf16, "fp8": 1.7 * bf16})
    return given(shape, int(rng.integers(2, 5)), "bf16_mla", device, "bf16")(rng, dtype)


def oracle(model, num_draft_tokens, cache_format, machine, dtype):
    """Seconds of a cache of a million tokens with all rows over those with one."""
    tokens, tiles = 10**6, (model.latent_dim + 127) // 128
    entry = {
        "bf16_mla": 2 * model.latent_dim + 2 * model.rope_dim,
        "fp8_ds_mla": model.latent_dim + 4 * tiles + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }[cache_format]
    times = []
    for rows in (1, num_draft_tokens + 1):
        scores = 2 * tokens * model.num_heads * rows * (model.latent_dim + model.rope_dim)
        mixing = 2 * tokens * model.num_heads * rows * model.latent_dim
        times.append(max(tokens * entry / machine.bandwidth, (scores + mixing) / machine.flops[dtype]))
    return times[1] / times[0]


# A wrong answer travels alone, so each one has the formats.


def rows_for_nothing(model, num_draft_tokens, cache_format, machine, dtype):
    return 1.0


def rows_in_full(model, num_draft_tokens, cache_format, machine, dtype):
    return float(num_draft_tokens + 1)


def one_row_at_the_ridge(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(1.0, (num_draft_tokens + 1) * row / read)


def drafts_alone(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(read, num_draft_tokens * row) / max(read, row)


def multiply_adds(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def added(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return (read + (num_draft_tokens + 1) * row) / (read + row)


def cache_read_for_each_row(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    rows = num_draft_tokens + 1
    return max(rows * read, rows * row) / max(read, row)


def scores_alone(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (latent + rope) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def scales_of_full_tiles(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent + latent // 128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def scales_over_the_rope_too(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - (latent + 2 * rope) // -128 * 4}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def always_bf16_entries(model, num_draft_tokens, cache_format, machine, dtype):
    read = 2 * (model.latent_dim + model.rope_dim) / machine.bandwidth
    row = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def always_bf16_arithmetic(model, num_draft_tokens, cache_format, machine, dtype):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops["bf16"]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


def unknown_format_taken_for_fp8(model, num_draft_tokens, cache_format, machine, dtype):
    if dtype not in machine.flops:
        raise ValueError(f"no rate for {dtype!r}; the choices are: {', '.join(machine.flops)}")
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    read = entry.get(cache_format, latent + rope) / machine.bandwidth
    row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(read, (num_draft_tokens + 1) * row) / max(read, row)


EXERCISE = Exercise(
    id="verify_rows_cost",
    chapter=8,
    order=11,
    title="what rows cost attention",
    checks="time of attention with a row for each draft and one more, over its time with one row",
    points=2,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand"),
        Case("128 heads on an H200", make=heads(128, 1)),
        Case("64 heads on an H200", make=heads(64, 1)),
        Case("64 heads on an H200, three drafts", make=heads(64, 3)),
        Case("16 heads on an H200, three drafts", make=heads(16, 3)),
        Case("32 heads on an H100, FP8 cache and arithmetic", make=heads(32, 3, "fp8_plain_mla", "H100", "fp8")),
        Case("Kimi-K2 with scales on a B200", make=given(KIMI_K2, 2, "fp8_ds_mla", machine("B200"), "bf16")),
        Case("MiniCPM3-4B on an A100", make=given(MINICPM3, 4, "bf16_mla", machine("A100"), "bf16")),
        Case("other widths, FP8 with scales", make=given(ODD, 5, "fp8_ds_mla", machine("H100"), "bf16")),
        Case("sizes drawn at random", make=make_drawn),
        Case("no draft", make=heads(128, 0)),
        Case(
            "an unknown cache format",
            make=heads(64, 1, "bf8_mla"),
            raises=Raises("ValueError", ("bf16_mla", "fp8_ds_mla", "fp8_plain_mla")),
        ),
        Case(
            "a dtype without a rate",
            make=heads(64, 1, "bf16_mla", "A100", "fp8"),
            raises=Raises("ValueError", ("bf16", "fp16", "fp32")),
        ),
    ),
    hints=(
        "Two times, and one over the other. What does a row more change in the reading, and what in the arithmetic?",
        "Take one cached token: its bytes over the bandwidth, once; the FLOP of all heads of one row over the rate, "
        "once for each row. The longer of the two is the time. The number of cached tokens cancels.",
        "Fill the gaps:\n\n"
        "    # ValueErrors first: formats, then machine.flops\n"
        "    reading = ____ / machine.bandwidth\n"
        "    row = 2 * model.num_heads * ____ / machine.flops[dtype]\n"
        "    return max(reading, ____) / max(reading, ____)",
    ),
    mistakes=(
        Mistake("rows for nothing", "more rows are free only while the reading takes longer", rows_for_nothing),
        Mistake(
            "rows in full",
            "every row was paid in full. All rows of a request share one reading of the cache, and it may take longer",
            rows_in_full,
        ),
        Mistake(
            "one row waits for memory",
            "one row was taken to wait for memory. With many heads a single row is past the ridge",
            one_row_at_the_ridge,
        ),
        Mistake("drafts alone", "there is a row more than there are drafts: the token before them", drafts_alone),
        Mistake("taken for multiply-adds", "a multiply-add is 2 FLOP, and rates are in FLOP", multiply_adds),
        Mistake("both added", "reading and arithmetic overlap: the longer one counts", added),
        Mistake("scores alone", "the values are missing: after the scores the latents are mixed", scores_alone),
        Mistake(
            "scales of full tiles alone",
            "a last tile that is not full has a scale as well: round latent_dim / 128 up",
            scales_of_full_tiles,
        ),
        Mistake(
            "rope among the tiles",
            "the 2 · rope_dim bytes were counted into the tiles. Only the latent has scales, and the rope's bytes "
            "stand beside them",
            scales_over_the_rope_too,
        ),
        Mistake("bf16 entries", "these are the bytes of bf16 entries. Take those of cache_format", always_bf16_entries),
        Mistake(
            "bf16 arithmetic", "the rate of bf16 was taken. The machine has one for each dtype", always_bf16_arithmetic
        ),
    ),
    mutants=(
        Mutant(rows_for_nothing, "rows for nothing"),
        Mutant(rows_in_full, "rows in full"),
        Mutant(one_row_at_the_ridge, "one row waits for memory"),
        Mutant(drafts_alone, "drafts alone"),
        Mutant(multiply_adds, "taken for multiply-adds"),
        Mutant(added, "both added"),
        Mutant(cache_read_for_each_row, "rows in full"),
        Mutant(scores_alone, "scores alone"),
        Mutant(scales_of_full_tiles, "scales of full tiles alone"),
        Mutant(scales_over_the_rope_too, "rope among the tiles"),
        Mutant(always_bf16_entries, "bf16 entries"),
        Mutant(always_bf16_arithmetic, "bf16 arithmetic"),
        Mutant(unknown_format_taken_for_fp8, "ValueError"),
    ),
)
