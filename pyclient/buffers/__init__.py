"""What user threads and the client's loop share: buffers, batches, deliveries, fetched data.

The only locks are here.
"""
