"""Record batches as bytes: written, read, compressed, checked. Knows no sockets, no threads, no clients."""
