# Nothing here is visible from Python: see scan.pxd.
