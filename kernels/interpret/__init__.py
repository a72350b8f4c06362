"""Triton where there may be no GPU: the choice of the interpreter, and what it can watch. No kernel lies here."""
