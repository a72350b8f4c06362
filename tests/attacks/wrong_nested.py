# A list that holds itself.
def project(x, w):
    items = []
    items.append(items)
    return items
