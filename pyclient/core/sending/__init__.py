"""Which batches leave when, and what the broker's answer means for them."""
