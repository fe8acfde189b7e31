"""Transactions of a producer (KIP-98, KIP-360, KIP-447, KIP-890): states, requests, and what each error means."""
