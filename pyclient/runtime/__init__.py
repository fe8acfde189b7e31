"""Where clients run: network, clock, randomness, threads and process hooks. A simulation replaces it."""
