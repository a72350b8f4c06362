"""Which course this is: a digest of everything that decides a verdict."""

import hashlib
from functools import cache
from pathlib import Path

#: Folders of the package that decide no verdict.
_ASIDE = ("browser", "build", "measure", "parallel", "widgets")


@cache
def course_digest() -> str:
    """Sixteen hexadecimal digits that change with the text of any exercise, oracle, account or part of the judge."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if place.parts[0] not in _ASIDE:
            digest.update(f"{place.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def answer_digest(*parts: str) -> str:
    """Sixteen hexadecimal digits of an answer's texts, in their order, for the course as it is."""
    return text_digest(course_digest(), *parts)


def text_digest(*parts: str) -> str:
    """Sixteen hexadecimal digits of texts in their order, in whatever version of the course."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)} ".encode() + data)
    return digest.hexdigest()[:16]
