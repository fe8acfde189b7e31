"""Record batches as bytes: written, read, compressed, checked. Independent of sockets, threads and clients."""
