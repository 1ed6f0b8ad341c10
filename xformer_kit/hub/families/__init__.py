"""One file per `model_type` of the library transformers; see `xformer_kit/hub/family.py`."""
