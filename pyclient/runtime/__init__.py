"""The only asyncio code: connections, the driver that turns managers' requests into bytes, background threads."""
