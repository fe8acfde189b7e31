"""Admin operations as calls: requests, and what each item of a response means. Errors are per item."""
