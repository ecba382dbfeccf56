"""Live pictures: what changed in the store reaches every viewer, at most twice a second.

`Hub` is told of commits by the writer and yields messages shaped like `api.live_models.ServerMessage`; the websocket
belongs to the API. Must not import fastapi, starlette or plotly.
"""

from halfscope_server.live.hub import Hub, Subscription
from halfscope_server.live.requests import CompareRequest, Request, RunRequest, RunsRequest

__all__ = ["CompareRequest", "Hub", "Request", "RunRequest", "RunsRequest", "Subscription"]
