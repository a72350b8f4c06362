"""What a step should cost, by formula: the predictions that counting and measuring are held against.

Counts are exact Python ints: multiply-adds (one is two FLOP), values, bytes. One module a topic.
"""
