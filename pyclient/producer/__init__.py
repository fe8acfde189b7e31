"""The producer: what users call, and what is the producer's alone."""
