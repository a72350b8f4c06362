# Never gets as far as the function.
while True:
    pass
