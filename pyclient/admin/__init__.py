"""The admin client: what users call."""
