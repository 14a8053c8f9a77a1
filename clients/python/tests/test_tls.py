"""An unknown certificate is refused with that reason; a context of the user's works."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

import halley
from aiohttp import web
from small_server import WAIT_S, AtAServer, line, ndjson

TRANSPORTS = ["websocket", "sse", "ndjson", "poll"]


class Tls(AtAServer):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pem, self.key = Path(folder.name, "ca.pem"), Path(folder.name, "ca.key")

    async def serve_tls(self, name: str = "IP:127.0.0.1") -> str:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={name}",
             "-keyout", self.key, "-out", self.pem], check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.pem, self.key)

        async def stream(request: web.Request) -> web.StreamResponse:
            answer = await ndjson(request)
            await answer.write(line(1))
            await asyncio.sleep(WAIT_S)
            return answer

        async def events(request: web.Request) -> web.StreamResponse:
            return web.json_response({"id": "e1", "sessions": 0})

        app = web.Application()
        app.router.add_get("/v1/stream", stream)
        app.router.add_post("/v1/events", events)
        app.router.add_post("/v1/me/events", events)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.addAsyncCleanup(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        return f"https://127.0.0.1:{runner.addresses[0][1]}"

    async def refused(self, url: str, words: str, context: ssl.SSLContext | None = None) -> None:
        """By each transport and by requests: what it is; no transport is blamed for it."""
        for transport in TRANSPORTS:
            others = [one for one in TRANSPORTS if one != transport]
            whys: asyncio.Queue[halley.HalleyError | None] = asyncio.Queue()
            client = halley.connect(
                url, user="b", transports=[transport, *others], ssl=context,
                on_state=lambda _, why, whys=whys: whys.put_nowait(why))  # type: ignore[misc]
            async with asyncio.timeout(WAIT_S), client:
                why = await whys.get()
                assert why is not None
                self.assertEqual((why.code, client.transport), ("tls", transport))
                self.assertRegex(why.message, words)
        async with (
            asyncio.timeout(WAIT_S), halley.connect(url, user="b", ssl=context) as client,
            halley.server(url, ssl=context) as server,
        ):
            for call in (client.publish("a", 1), server.publish("a", 1)):
                with self.assertRaisesRegex(halley.HalleyError, words) as caught:
                    await call
                self.assertEqual(caught.exception.code, "tls")

    async def test_a_ca_of_ones_own(self) -> None:
        url = await self.serve_tls()
        await self.refused(url, r"isn't trusted.*ssl=ssl.create_default_context")
        context = ssl.create_default_context(cafile=self.pem)
        async with (
            asyncio.timeout(WAIT_S),
            halley.connect(url, user="b", transports=["ndjson"], ssl=context) as client,
            halley.server(url, ssl=context) as server,
        ):
            await client.opened()
            self.assertEqual((await client.publish("a", 1)).id, "e1")
            self.assertEqual((await server.publish("a", 1)).id, "e1")

    async def test_another_hosts_certificate(self) -> None:
        url = await self.serve_tls("DNS:elsewhere.example")
        context = ssl.create_default_context(cafile=self.pem)
        await self.refused(url, r"isn't trusted.*127\.0\.0\.1", context)

    async def test_a_server_that_speaks_no_tls(self) -> None:
        url = await self.serve(ndjson)
        await self.refused(url.replace("http://", "https://"), "no TLS")


if __name__ == "__main__":
    unittest.main()
