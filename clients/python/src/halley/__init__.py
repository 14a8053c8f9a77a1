"""Client of Halley, for asyncio: `connect` for a user's events, `server` for what servers do."""

from .client import Client, connect
from .server import Server, server
from .types import Event, Gap, HalleyError, Item, Presence, Published, State

__all__ = [
    "Client", "Event", "Gap", "HalleyError", "Item", "Presence", "Published", "Server", "State",
    "connect", "server",
]
