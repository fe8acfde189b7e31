"""What user threads and the client's reactor share: buffers, batches, deliveries, fetched data.

The only locks are here.
"""
