"""The application: runs of xformer_kit's models on Lightning, from a saved config to a run's
directory.
"""
