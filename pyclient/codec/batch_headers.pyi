# Nothing here is visible from Python: see batch_headers.pxd.
