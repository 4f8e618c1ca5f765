"""The ordered clients for asyncio."""
