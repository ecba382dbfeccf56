"""What the server is and how it looks: version, address, the empty state's three lines, and the theme.

Must not import the store. Invariant: nothing here depends on any run.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from halfscope._version import __version__

from halfscope_server import panels
from halfscope_server.api import web
from halfscope_server.api.models import ServerInfo, Theme
from halfscope_server.api.problems import RESPONSES
from halfscope_server.api.services import ServicesNow
from halfscope_server.settings import DEFAULT_PORT

router = APIRouter(prefix="/api/v1", tags=["server"], responses=RESPONSES)


@router.get("/server")
def server_info(request: Request, services: ServicesNow) -> ServerInfo:
    """Version, address and the three lines of code to begin with."""
    address = (services.settings.public_url or str(request.base_url)).rstrip("/")
    return ServerInfo(
        version=__version__,
        address=address,
        database=services.store.dialect,
        web_version=web.build_id(services.settings.web_directory),
        snippet=snippet(address),
    )


@router.get("/theme")
def theme() -> Theme:
    """Colour roles for light and dark."""
    return Theme.model_validate(panels.theme())


def snippet(address: str) -> str:
    """The three lines of the empty state; the address only where an agent would not find it by itself."""
    elsewhere = address not in (f"http://127.0.0.1:{DEFAULT_PORT}", f"http://localhost:{DEFAULT_PORT}")
    argument = f', server="{address}"' if elsewhere else ""
    return (
        "import halfscope\n"
        f'run = halfscope.watch(model, optimizer, scaler, project="my-project"{argument})\n'
        "run.step(loss=loss, samples=len(batch))  # once per step, optional"
    )
