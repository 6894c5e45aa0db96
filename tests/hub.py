"""A hub on this machine, which gives files, refuses and breaks off."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


LARGE = ".pth", ".safetensors", ".gguf", ".model"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def checksum(name: str, data: bytes) -> dict:
    """Return what a hub tells of a file: small ones are git's own."""
    if name.endswith(LARGE):
        lfs = dict(sha256=digest(data), size=len(data), pointerSize=134)
        return dict(blobId="0" * 40, lfs=lfs)
    blob = f"blob {len(data)}\0".encode() + data
    return dict(blobId=hashlib.sha1(blob).hexdigest())


class Hub:
    """A page with files, and how the server answers.

    Attributes:
        repo: its only page.
        files: name to bytes.
        login: None, or a key of REFUSALS.
        breaks: the number of downloads still to break off in the middle.
        status: the answer to every request, or None.
        sha: the only revision.
        altered: files of which a bit changes on the way.
        asked: the path of every request.
    """

    def __init__(self, repo: str, files: dict[str, bytes]):
        self.repo, self.files = repo, files
        self.login = self.status = None
        self.breaks, self.asked = 0, []
        self.sha, self.altered = SHA, set()
        self.license = "llama3.2"

    def tree(self) -> list[dict]:
        """Return the list of files."""
        return [
            dict(type="file", path=name, size=len(data), oid=digest(data))
            for name, data in self.files.items()
        ]

    def info(self, blobs: bool) -> dict:
        """Return what the page says; with the files' checksums, if asked."""
        return dict(
            _id="1",
            id=self.repo,
            sha=self.sha,
            siblings=[
                dict(rfilename=name) | (checksum(name, data) if blobs else {})
                for name, data in self.files.items()
            ],
            cardData={"license": self.license},
        )


REFUSALS = {
    "first": (401, "GatedRepo", "Access to model is restricted."),
    "absent": (404, "RepoNotFound", "Repository not found"),
}


class Handler(BaseHTTPRequestHandler):
    """One request; the hub is the server's."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(path)
        if hub.status:
            return self.send(hub.status, b"a fault", with_body)
        page = f"/api/models/{hub.repo}"
        tree, revision = f"{page}/tree/{hub.sha}", f"{page}/revision/{hub.sha}"
        if path in (page, tree, revision) and hub.login != "absent":
            blobs = "blobs=true" in self.path
            found = hub.tree() if path == tree else hub.info(blobs)
            data = json.dumps(found).encode()
            return self.send(200, data, with_body)
        name = path.removeprefix(f"/{hub.repo}/resolve/{hub.sha}/")
        if hub.login or name not in hub.files:
            status, code, said = REFUSALS[hub.login or "absent"]
            headers = {"X-Error-Code": code, "X-Error-Message": said}
            return self.send(status, b"", with_body, headers)
        data, status = hub.files[name], 200
        headers = {"X-Repo-Commit": hub.sha, "ETag": f'"{digest(data)}"'}
        if ranged := self.headers.get("Range"):  # the rest of a file
            start = int(ranged.removeprefix("bytes=").split("-")[0])
            end = f"{len(data) - 1}/{len(data)}"
            headers["Content-Range"] = f"bytes {start}-{end}"
            status, data = 206, data[start:]
        if name in hub.altered:
            data = data[:-1] + bytes([data[-1] ^ 1])
        broken = with_body and hub.breaks > 0
        hub.breaks -= broken
        self.send(status, data, with_body, headers, broken)

    def send(self, status, data, with_body, headers=None, broken=False):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data[: len(data) // 2] if broken else data)
            self.wfile.flush()
        if broken:
            self.close_connection = True


@contextmanager
def serving(hub: Hub):
    """Serve the hub, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub, server.daemon_threads = hub, True
    thread = threading.Thread(
        target=server.serve_forever, args=(0.02,), daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
