"""Text that trained models generate: answers, filled masks, translations."""
