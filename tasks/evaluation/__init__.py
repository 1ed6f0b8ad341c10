"""Tasks of the library lm-eval on a run: the model that the library calls, its tasks, the stored
results, and their comparison item by item.
"""
