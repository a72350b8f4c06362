# An object with whatever a kernel is asked for.


class Liar:
    def __getattr__(self, name):
        if name == "fn":
            raise AttributeError(name)
        return self

    def __call__(self, *arguments, **options):
        return self


absorb_heads_kernel = Liar()
