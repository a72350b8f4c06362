"""The chapters of the course: number, folder and title."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """One chapter; ``folder`` is its name under ``course``, ``notebooks``, ``practice`` and ``solutions``."""

    number: int
    folder: str
    title: str


CHAPTERS = (
    Chapter(0, "ch00_start_here", "start here"),
    Chapter(1, "ch01_keys", "keys"),
    Chapter(2, "ch02_heads", "many heads, one latent"),
    Chapter(3, "ch03_values", "values"),
    Chapter(4, "ch04_rope", "RoPE does not absorb"),
    Chapter(5, "ch05_crossover", "cost and crossover"),
    Chapter(6, "ch06_cache", "cache, capacity, which path when"),
    Chapter(7, "ch07_decode_kernel", "a decode kernel"),
)
TITLES = {chapter.number: chapter.title for chapter in CHAPTERS}
