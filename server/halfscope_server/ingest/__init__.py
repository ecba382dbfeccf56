"""Frames from agents into the store: the writer thread and the two routes. Must not import api or query."""

from halfscope_server.ingest.router import MAX_POST_BYTES, WS_MAX_QUEUE, WS_MAX_SIZE_BYTES, make_router
from halfscope_server.ingest.writer import IngestMetrics, Writer

__all__ = ["MAX_POST_BYTES", "WS_MAX_QUEUE", "WS_MAX_SIZE_BYTES", "IngestMetrics", "Writer", "make_router"]
