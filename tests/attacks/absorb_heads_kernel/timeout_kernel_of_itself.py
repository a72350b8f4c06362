# A kernel that is wrapped in itself.


class Wrapped:
    def __call__(self):
        pass

    @property
    def fn(self):
        return self


absorb_heads_kernel = Wrapped()
