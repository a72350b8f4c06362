"""Grade a whole class: ``judge.py class DIR``.

``work`` says what one student's work is and grades it, ``pool`` shares the work among processes here or among the
workers of a dask cluster, ``store`` is the one writer of the results, ``similar`` looks for answers that resemble each
other, ``report`` makes the tables, and ``run`` is the command.
"""
