"""Values that all kinds of component share: what a parameter is."""
