"""The closed set of verdicts, and the records of a graded case and a graded exercise."""

from dataclasses import dataclass, field

#: Only ``passed`` is ever counted as passed. ``skipped`` is what this machine cannot run; ``judge_error`` is the
#: judge's own fault and never held against the learner.
VERDICTS = (
    "passed",
    "wrong",
    "error",
    "timeout",
    "memory",
    "output",
    "crash",
    "todo",
    "missing",
    "skipped",
    "judge_error",
)


@dataclass(frozen=True)
class CaseResult:
    """One case: its verdict, one line that says why, and rows of (label, text) for the full report.

    ``calls`` is the exercise to begin with: one that the answer calls, and that is not solved.
    """

    name: str
    verdict: str
    message: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    calls: str = ""


@dataclass
class ExerciseResult:
    """One exercise: the verdict of its first case that did not pass, points as the share of cases passed.

    ``counts`` holds what was counted beside what the formula says, or is empty; ``notes`` are remarks of collection.
    """

    id: str
    chapter: int
    title: str
    verdict: str
    points: float
    max_points: int
    seconds: float
    message: str = ""
    cases: list[CaseResult] = field(default_factory=list)
    counts: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    output: str = ""
    where: str = ""

    @property
    def failure(self) -> CaseResult | None:
        """The first case that did not pass."""
        return next((case for case in self.cases if case.verdict != "passed"), None)

    @property
    def goes_on_with(self) -> str:
        """The exercise to work on for this one to pass: one that the answer calls and that is not solved, else this."""
        return self.failure.calls or self.id if self.failure else self.id

    def to_json(self) -> dict:
        """The exercise as the machine-readable result holds it."""
        return {
            "id": self.id,
            "chapter": self.chapter,
            "title": self.title,
            "verdict": self.verdict,
            "points": self.points,
            "max_points": self.max_points,
            "seconds": round(self.seconds, 4),
            "message": self.message,
            "cases": [{"name": c.name, "verdict": c.verdict, "message": c.message} for c in self.cases],
            "counts": self.counts,
            "notes": self.notes,
        }
