"""Every kernel once more in NumPy, with the same loops and the same names. Slow: for reading, stepping and testing."""
