"""The admin client, what users call; and the values that it takes and returns."""
