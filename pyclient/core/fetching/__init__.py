"""Where each partition is read next, what is fetched, and what the broker's answers mean."""
