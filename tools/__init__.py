"""Programs for maintainers: they write what is generated. Not installed."""
