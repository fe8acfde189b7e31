"""Record batches as bytes: written, read, compressed, checked. Independent of sockets, threads and clients."""
from pyclient.codec.kio_loading import load_without_hypothesis

load_without_hypothesis()  # before any module here imports kio
