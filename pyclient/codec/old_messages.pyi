# Nothing here is visible from Python: see old_messages.pxd.
