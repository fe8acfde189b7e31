# Nothing here is visible from Python: see record_headers.pxd.
