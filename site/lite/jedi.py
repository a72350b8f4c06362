"""Completion in the browser, in jedi's place: IPython asks for jedi, which is 5 MB and slow to start there.

Only what IPython calls is here. Names come from the objects that the kernel holds, so nothing is inferred and nothing
of the learner's is run: attributes of modules and instances are listed, calls and subscripts are not followed.
"""

import builtins
import inspect
import keyword
import re
import sys
import types

__version__ = "0"

settings = types.SimpleNamespace(case_insensitive_completion=False)
# IPython imports both names, and uses them in annotations alone.
api = types.ModuleType("jedi.api")
for _name in ("helpers", "classes"):
    setattr(api, _name, types.ModuleType(f"jedi.api.{_name}"))
    sys.modules[f"jedi.api.{_name}"] = getattr(api, _name)
sys.modules["jedi.api"] = api
__path__ = []

_MISSING = object()


class Signature:
    """The signature of a function, as text."""

    def __init__(self, text):
        self.text = text

    def to_string(self):
        return self.text


class Completion:
    """One name that fits: ``complete`` is what is still to be typed."""

    def __init__(self, name, typed, value):
        self.name = self.name_with_symbols = name
        self.complete = name[len(typed) :]
        self.value = value
        self.type = _kind(value, name)

    def get_signatures(self):
        try:
            return [Signature(f"{self.name}{inspect.signature(self.value)}")]
        except (TypeError, ValueError):
            return []


class Interpreter:
    """What can follow ``text``, by the names in ``namespaces``."""

    def __init__(self, text, namespaces):
        self.text, self.namespaces = text, namespaces

    def complete(self, line=None, column=None):
        chain = re.search(r"((?:[^\W\d]\w*\.)*)([^\W\d]\w*)?$", self.text)
        parents, typed = chain[1].split(".")[:-1], chain[2] or ""
        if self.text[: chain.start()].endswith("."):
            return []
        found = _attributes(parents, self.namespaces) if parents else _names(self.namespaces)
        return [Completion(name, typed, value) for name, value in sorted(found) if name.startswith(typed)]


def _kind(value, name):
    if value is _MISSING:
        return "keyword" if keyword.iskeyword(name) else "statement"
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "instance"


def _names(namespaces):
    found = {name: _MISSING for name in keyword.kwlist}
    for namespace in [vars(builtins), *reversed(namespaces)]:
        found.update(namespace)
    return found.items()


def _attributes(parents, namespaces):
    value = next((space[parents[0]] for space in namespaces if parents[0] in space), _MISSING)
    for name in parents[1:]:
        value = inspect.getattr_static(value, name, _MISSING)
    if value is _MISSING:
        return []
    return [(name, inspect.getattr_static(value, name, _MISSING)) for name in dir(value)]
