"""The one history of the tables, for both dialects. `upgrade` brings a database to its newest revision.

Must not import the store's other modules but the schema. Invariant: a revision that was released is never edited.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from halfscope_server.errors import Unavailable


def configuration() -> Config:
    """Alembic's configuration, in code: there is no ini file to find."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def upgrade(connection: sa.Connection) -> None:
    """Run what is missing, inside the caller's transaction.

    Raises:
        Unavailable: the database holds a revision that this version does not know.
    """
    config = configuration()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise Unavailable(
            f"the database was made by a newer halfscope ({error}); upgrade halfscope on this machine"
        ) from error
