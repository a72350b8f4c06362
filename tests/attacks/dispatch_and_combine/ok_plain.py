# The control: what stands in the cell above is right.
