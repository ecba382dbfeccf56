"""What takes in agents' frames, as a program: store, writer and the two routes, without pages, rules and alerts.

    python -m tests.helpers.ingest_server PORT DATABASE_URL

For tests that kill it many times; everything between the socket and the database is the server's own.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from halfscope_server.ingest import WS_MAX_QUEUE, WS_MAX_SIZE_BYTES, Writer, make_router
from halfscope_server.store.store import Store


def main(port: int, database_url: str) -> None:
    store = Store.open(database_url)
    writer = Writer(store, lambda _applied: None)
    writer.start()
    app = FastAPI()
    app.include_router(make_router(writer, lambda _connection: True))
    try:
        uvicorn.run(
            app,
            host="127.0.0.1",
            port=port,
            log_level="error",
            lifespan="off",
            ws_max_size=WS_MAX_SIZE_BYTES,
            ws_max_queue=WS_MAX_QUEUE,
        )
    finally:
        writer.stop()
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
