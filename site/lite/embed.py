"""What IPython imports of its terminal when it starts, for a browser that has none: without prompt_toolkit."""


def embed(*_, **__):
    """IPython.embed() of a browser."""
    raise RuntimeError("there is no terminal in a browser: IPython.embed() works on a computer only")
