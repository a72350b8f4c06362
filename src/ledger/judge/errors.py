"""What the judge can say in one line instead of a verdict."""


class UsageError(ValueError):
    """The call cannot be carried out as it stands; the text says what to do."""


class Unreadable(ValueError):
    """A file that is not what it should be; the text says what is wrong with it. ``path`` is the file, where known."""

    path = None


class StateError(OSError):
    """The learner's state could not be kept or read; the text says where and why."""
