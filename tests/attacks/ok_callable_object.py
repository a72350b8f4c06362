# An object that can be called is as good as a function.
class Project:
    def __call__(self, x, w):
        return x @ w


project = Project()
