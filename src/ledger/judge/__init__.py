"""The judge: collect answers, run them apart, compare what came back, report."""
