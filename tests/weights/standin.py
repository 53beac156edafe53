"""A stand-in for the Hugging Face hub on this machine: the few requests that fetching and pushing a model make.

    with Hub() as hub:
        hub.add("jane/digits", {"model.safetensors": b"..."})
        os.environ["HF_ENDPOINT"] = hub.url

Large files are sent as git LFS objects, as to the real hub without Xet (HF_HUB_DISABLE_XET=1).
"""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import yaml

TOKEN = "hf_stand_in"


class Repository:
    """Files by commit, and branches."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.private: Any = None
        self.commit("main", {})

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        whole = self.commits.get(self.branches.get(branch, ""), {}) | files
        described = json.dumps([len(self.commits), *sorted((n, hashlib.sha1(c).hexdigest()) for n, c in whole.items())])
        self.branches[branch] = oid = hashlib.sha1(described.encode()).hexdigest()
        self.commits[oid] = whole
        return oid


class Hub:
    """The server, with what it stores and what it was asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # LFS, by SHA-256
        self.asked: list[str] = []
        self.agents: set[str] = set()
        hub = self

        class Bound(Answers):
            standin = hub

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def add(self, name: str, files: dict[str, bytes], branch: str = "main") -> str:
        return self.repositories.setdefault(name, Repository()).commit(branch, files)


class Answers(BaseHTTPRequestHandler):
    standin: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def reply(self, status: int, body: Any = b"", **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("length", str(len(content))))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def missing(self, code: str, message: str) -> None:
        self.reply(404, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    def read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def handle_one(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.standin.asked.append(f"{self.command} {path}")
        self.standin.agents.add(self.headers.get("User-Agent", ""))
        body = self.read()
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(.+)/([^/]+)", path):
            self.resolve(*found.groups())
        elif self.command == "PUT" and (found := re.fullmatch(r"/objects/(\w+)", path)):
            self.standin.objects[found[1]] = body
            self.reply(200)
        elif path.startswith("/objects-verify"):
            self.reply(200, {})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.reply(401, {"error": "Invalid username or password."})
        else:
            self.write(path, body)

    do_GET = do_HEAD = do_POST = do_PUT = handle_one  # noqa: N815 - the names that http.server calls

    def resolve(self, name: str, revision: str, file: str) -> None:
        repository = self.standin.repositories.get(name)
        if repository is None:
            return self.missing("RepoNotFound", "Repository not found")
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            return self.missing("RevisionNotFound", f"Invalid rev id: {revision}")
        content = repository.commits[commit].get(file)
        if content is None:
            return self.reply(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        pretended = {"length": content.decode().split()[1]} if content.startswith(b"pretend ") else {}
        return self.reply(200, content, ETag=etag, X_Repo_Commit=commit, **pretended)

    def write(self, path: str, body: bytes) -> None:
        """What needs a token."""
        asked = json.loads(body) if body and "/commit/" not in path else {}
        if path == "/api/validate-yaml":
            return self.validate(asked["content"])
        if path == "/api/repos/create":
            name = f"{asked['organization']}/{asked['name']}"
            if name in self.standin.repositories:
                return self.reply(
                    409, {"error": "You already created this model repo", "url": f"{self.standin.url}/{name}"}
                )
            self.standin.repositories[name] = repository = Repository()
            repository.private = asked.get("visibility", asked.get("private"))
            return self.reply(200, {"url": f"{self.standin.url}/{name}"})
        if found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return self.reply(200, {"transfer": "basic", "objects": [self.place(one) for one in asked["objects"]]})
        if not (found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(\w+)/(.+)", path)):
            return self.reply(404, {"error": f"the stand-in does not know {path}"})
        name, what, revision = found.groups()
        repository = self.standin.repositories.get(name)
        if repository is None:
            return self.missing("RepoNotFound", "Repository not found")
        if what == "branch":
            if revision in repository.branches:
                return self.reply(409, {"error": "Reference already exists"})
            repository.branches[revision] = repository.branches["main"]
            return self.reply(200)
        if what == "revision":
            commit = repository.branches.get(revision, revision)
            return self.reply(200, {"_id": name, "id": name, "sha": commit, "xetEnabled": False})
        if what == "preupload":
            modes = ["lfs" if file["path"].endswith(".safetensors") else "regular" for file in asked["files"]]
            files = [
                {"path": f["path"], "uploadMode": m, "shouldIgnore": False}
                for f, m in zip(asked["files"], modes, strict=True)
            ]
            return self.reply(200, {"files": files})
        if what == "commit":
            oid = repository.commit(revision, dict(self.lines(body)))
            return self.reply(200, {"commitUrl": f"{self.standin.url}/{name}/commit/{oid}", "commitOid": oid})
        return self.reply(404, {"error": f"the stand-in does not know {path}"})

    def place(self, wanted: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.standin.url}/objects/{wanted['oid']}"}
        actions = {"upload": upload, "verify": {"href": f"{self.standin.url}/objects-verify"}}
        return {**wanted, "actions": actions}

    def lines(self, body: bytes) -> list[tuple[str, bytes]]:
        """The files of a commit."""
        files = []
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files.append((value["path"], base64.b64decode(value["content"])))
            elif line["key"] == "lfsFile":
                content = self.standin.objects[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
                files.append((value["path"], content))
        return files

    def validate(self, content: str) -> None:
        """The rules of the real hub that concern us: front matter in YAML, a licence, results with all their parts."""
        found = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
        header = yaml.safe_load(found[1]) if found else None
        errors = [] if isinstance(header, dict) and isinstance(header.get("license"), str) else ["no license"]
        for result in (r for one in (header or {}).get("model-index", ()) for r in one["results"]):
            if not (result["task"]["type"] and result["dataset"]["type"] and result["dataset"]["name"]):
                errors.append("incomplete result")
            errors += [] if all({"type", "value"} <= set(m) for m in result["metrics"]) else ["incomplete metric"]
        self.reply(400 if errors else 200, {"errors": [{"message": e} for e in errors], "warnings": []})
