"""HTTP with deadlines: a client that does not finish its request loses its connection.

uvicorn waits for ever for the rest of a header or of a body. Here both have a time limit in all, not per byte, so that
a client that sends a byte a second is no exception.
"""

import asyncio
import json
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from capsnet.serving.access import DRAINED, LARGEST

log = logging.getLogger("capsnet")

HEADER_SECONDS = 10.0
BODY_SECONDS = 60.0


class PatientProtocol(H11Protocol):
    """uvicorn's protocol; a request that is not complete in time is answered with a 408 and ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._phase: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # broken after the answer had begun: there is nothing more to say
            self.transport.abort()
        if self._endless_chunk():
            self._end(413, f"the body is too large: at most {LARGEST:,} bytes are taken")
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the clock of a phase when it begins; a phase that goes on keeps its clock."""
        phase = self._current()
        if phase == self._phase:
            return
        self._forget()
        self._phase = phase
        if phase is not None and not self.transport.is_closing():
            seconds = HEADER_SECONDS if phase[0] == "header" else BODY_SECONDS
            self._timer = self.loop.call_later(seconds, self._late, phase[0], seconds)

    def _current(self) -> tuple[str, int] | None:
        """What is awaited from the client, and of which request."""
        state = self.conn.their_state
        if state is h11.IDLE:
            return "header", id(self.cycle)
        return ("body", id(self.cycle)) if state is h11.SEND_BODY else None

    def _endless_chunk(self) -> bool:
        """Whether a chunk was announced that no body may have: it would be waited for in vain."""
        left = getattr(getattr(self.conn, "_reader", None), "_bytes_in_chunk", 0)
        return self.conn.their_state is h11.SEND_BODY and left > DRAINED

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._phase = None

    def _late(self, part: str, seconds: float) -> None:
        self._timer = None
        log.info("ended a connection: its %s was not complete after %g s", part, seconds)
        begun = part == "body" or bool(self.conn.trailing_data[0])
        if begun:
            self._end(408, f"the {part} of the request was not complete after {seconds:g} s")
        elif not self.transport.is_closing():
            self.transport.close()  # of a client that has said nothing

    def _end(self, status: int, text: str) -> None:
        """Answer, unless an answer has begun, and close. The application sees a client that has left."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": text}).encode()
            reason = {408: "Request Timeout", 413: "Content Too Large"}[status]
            head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
