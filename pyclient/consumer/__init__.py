"""The consumer: what users call, and what is the consumer's alone."""
