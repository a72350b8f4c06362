"""Serve the built site on this computer: ``python site/serve.py [--port N] [--under /sub/path/] [FOLDER]``."""

import argparse
import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIST = Path(__file__).resolve().parent.parent / "dist"


class Handler(SimpleHTTPRequestHandler):
    """Files of one folder below the path ``under``, with the types that a browser insists on.

    The browser keeps them but asks each time whether there are newer ones, so that a new build is seen at once.
    """

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
        ".ipynb": "application/json",
        ".webmanifest": "application/manifest+json",
        ".wgsl": "text/plain",
    }
    protocol_version = "HTTP/1.1"
    under = "/"
    cache_control = "no-cache"

    def translate_path(self, path: str) -> str:
        """The file that a request's path stands for; one outside ``under`` is a file that does not exist."""
        if not path.startswith(self.under):
            return str(Path(self.directory) / "not-below-the-sub-path")
        return super().translate_path("/" + path[len(self.under) :])

    def end_headers(self) -> None:
        self.send_header("Cache-Control", self.cache_control)
        super().end_headers()

    def log_message(self, *_) -> None:
        """Say nothing of each request."""


def server(folder: Path, port: int = 0, under: str = "/") -> ThreadingHTTPServer:
    """A server of ``folder`` on loopback; port 0 takes a free one. ``under`` starts and ends with a slash."""
    handler = type("Handler", (Handler,), {"under": under})
    return ThreadingHTTPServer(("127.0.0.1", port), functools.partial(handler, directory=str(folder)))


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve the built site on this computer.")
    parser.add_argument("folder", nargs="?", type=Path, default=DIST)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--under", default="/", help="path of the site's root, as on a pages host: /sub/path/")
    options = parser.parse_args()
    if not options.folder.is_dir():
        raise SystemExit(f"There is no site in {options.folder}: run 'make site' or 'make site OFFLINE=1' first")
    with server(options.folder, options.port, options.under) as serving:
        print(f"== The site is at http://127.0.0.1:{serving.server_port}{options.under} (Ctrl-C ends it)", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
