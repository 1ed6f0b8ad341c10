"""What is in a model, and what does it cost? Parameters, FLOPs, memory, and the parts that there are."""
