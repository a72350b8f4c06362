"""Explorers and pictures of the lessons: one explorer a chapter on one base, one helper for flow pictures.

Nothing here imports matplotlib or ipywidgets before something is drawn, so a page without them still loads ``ledger``.
"""
