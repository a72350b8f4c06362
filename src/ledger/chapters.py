"""The chapters of the course: number, folder, title and notebooks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """One chapter; ``folder`` is its name under ``course``, ``notebooks``, ``practice`` and ``solutions``.

    ``lessons`` and ``practice`` name its notebooks in the order in which they are read, without folder and suffix.
    """

    number: int
    folder: str
    title: str
    lessons: tuple[str, ...]
    practice: tuple[str, ...]

    def paths(self, kind: str) -> list[str]:
        """Its ``lessons`` or its ``practice`` with the folder: ``ch01_keys/keys``."""
        return [f"{self.folder}/{name}" for name in getattr(self, kind)]


CHAPTERS = (
    Chapter(0, "ch00_start_here", "start here", ("start_here",), ()),
    Chapter(1, "ch01_keys", "keys", ("keys",), ("keys",)),
    Chapter(2, "ch02_heads", "many heads, one latent", ("heads",), ("heads",)),
    Chapter(3, "ch03_values", "values", ("values",), ("values",)),
    Chapter(4, "ch04_rope", "RoPE does not absorb", ("rope",), ("rope",)),
    Chapter(5, "ch05_crossover", "cost and crossover", ("crossover",), ("crossover",)),
    Chapter(6, "ch06_cache", "cache, capacity, which path when", ("cache",), ("cache",)),
    Chapter(7, "ch07_decode_kernel", "a decode kernel", ("decode_kernel",), ("decode_kernel", "triton_kernels")),
    Chapter(8, "ch08_mtp", "multi-token prediction", ("drafts", "speed"), ("drafts", "speed")),
    Chapter(9, "ch09_experts", "expert parallelism", ("experts", "ranks"), ("experts", "ranks")),
    Chapter(10, "ch10_dsa", "DeepSeek sparse attention", ("indexer", "costs"), ("indexer", "ledger")),
    Chapter(11, "ch11_nsa", "native sparse attention", ("nsa",), ("nsa",)),
)
TITLES = {chapter.number: chapter.title for chapter in CHAPTERS}
#: Every lesson and every practice notebook, as ``ch01_keys/keys``, in the order of the course.
LESSONS = tuple(path for chapter in CHAPTERS for path in chapter.paths("lessons"))
PRACTICE = tuple(path for chapter in CHAPTERS for path in chapter.paths("practice"))
