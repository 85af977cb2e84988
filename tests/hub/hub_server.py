"""A real HTTP server that speaks the Hub's protocol to the unmodified client, with faults on demand.

It holds repositories as lists of commits, large files by their sha256, and checks what the real one checks: tokens,
metadata of cards, that a large file is there before it is committed, and the parent of a commit. A fault is armed for
requests whose ``METHOD path`` matches a pattern and happens to the next few of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

TOKEN = "hf_thisIsASecretOfTheTests"
OWNER = "ann"
FOREVER = 10**6


@dataclass
class Fault:
    """What happens to the next ``times`` requests that match.

    ``kind``: ``status`` answers with ``code``; ``cut`` drops the connection before anything is done, ``cut_after`` once
    it is done but unanswered, ``cut_body`` in the middle of the answer's body; ``alter`` changes a byte of the body,
    ``truncate`` shortens it and announces the shorter length.
    """

    pattern: str
    kind: str
    times: int = 1
    code: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    message: str = ""
    hits: int = 0


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)  # paths kept as large files

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        parent = self.branches.get(branch, "")
        content = "".join(f"{path}{hashlib.sha1(data).hexdigest()}" for path, data in sorted(files.items()))
        sha = hashlib.sha1(f"{parent}{len(self.commits)}{content}".encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def at(self, revision: str) -> str | None:
        return self.branches.get(revision) or (revision if revision in self.commits else None)


class HubServer:
    """Use as a context manager; ``url`` is its address, ``log`` the requests that came."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.log: list[str] = []
        self.lock = threading.RLock()
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fail(self, pattern: str, kind: str = "status", **options: Any) -> Fault:
        fault = Fault(pattern, kind, **options)
        self.faults.append(fault)
        return fault

    def add(self, name: str, files: dict[str, bytes], **options: bool) -> str:
        """Put a repository there, large files being those of safetensors."""
        repo = self.repos[name] = Repo(**options)
        repo.lfs = {path for path in files if path.endswith(".safetensors")}
        return repo.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n", **files})

    def main(self, name: str) -> dict[str, bytes]:
        return self.repos[name].commits[self.repos[name].branches["main"]]

    def commits(self, name: str) -> int:
        return len(self.repos[name].commits)

    def fault_for(self, request: str, kinds: set[str]) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.kind in kinds and fault.hits < fault.times and re.search(fault.pattern, request):
                    fault.hits += 1
                    return fault
        return None


def surroundings(hub: HubServer, home: Path, **more: str) -> dict[str, str]:
    """The environment of a process whose client talks to this server, with a cache of its own."""
    client = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(home)}
    return {**os.environ, **client, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", **more}


class _Refused(Exception):
    def __init__(self, code: int, error: str = "", message: str = "") -> None:
        self.code, self.error, self.message = code, error, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    server_hub: HubServer

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        hub, parts = self.server_hub, urlsplit(self.path)
        self.request_name = f"{self.command} {unquote(parts.path)}"
        hub.log.append(self.request_name)
        length = int(self.headers.get("Content-Length") or 0)
        if hub.fault_for(self.request_name, {"cut"}):
            self.rfile.read(min(length, 1000))
            return self._cut()
        body = self._body(length)
        if fault := hub.fault_for(self.request_name, {"status"}):
            text = json.dumps({"error": fault.message}).encode()
            return self._answer(fault.code, text, fault.headers)
        try:
            with hub.lock:
                answer = self._route(parts.path, parse_qs(parts.query), body)
        except _Refused as refused:
            headers = {"X-Error-Message": refused.message} | ({"X-Error-Code": refused.error} if refused.error else {})
            answer = refused.code, headers, json.dumps({"error": refused.message}).encode()
        if hub.fault_for(self.request_name, {"cut_after"}):
            return self._cut()
        status, headers, content = answer
        return self._answer(status, content, headers)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _body(self, length: int) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(length)
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        hub, body = self.server_hub, content
        if self.command == "GET" and hub.fault_for(self.request_name, {"alter"}):
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if self.command == "GET" and hub.fault_for(self.request_name, {"truncate"}):
            body = body[: len(body) // 2]
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.command == "GET" and hub.fault_for(self.request_name, {"cut_body"}):
            self.wfile.write(body[: len(body) // 2])
            return self._cut()
        self.wfile.write(body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    # What is asked for

    def _route(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, dict[str, str], bytes]:
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"/api/whoami-v2", self._whoami),
            ("POST", r"/api/repos/create", lambda: self._create(json.loads(body))),
            ("POST", r"/api/validate-yaml", lambda: self._validate(json.loads(body)["content"])),
            ("GET", r"/api/models", lambda: self._list(query)),
            ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", self._info),
            ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self._tree),
            ("POST", r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", lambda *a: self._preupload(*a, json.loads(body))),
            (
                "POST",
                r"/api/models/([^/]+/[^/]+)/branch/([^/]+)",
                lambda *a: self._branch(*a, json.loads(body or b"{}")),
            ),
            ("POST", r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", lambda *a: self._commit(*a, body)),
            ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", lambda name: self._batch(name, json.loads(body))),
            ("PUT", r"/lfs/(\w+)", lambda oid: self._upload(oid, body)),
            ("POST", r"/lfs/(\w+)/verify", self._verify),
        ]
        for method, pattern, answer in routes:
            if method == self.command and (match := re.fullmatch(pattern, path)):
                made = answer(*(unquote(group) if group else group for group in match.groups()))
                return made if isinstance(made, tuple) else (200, {}, json.dumps(made).encode())
        if self.command in ("GET", "HEAD") and (match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)):
            return self._resolve(*map(unquote, match.groups()))
        raise _Refused(404, message=f"no such page: {path}")

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization")
        if given is not None and given != f"Bearer {TOKEN}":
            raise _Refused(401, message=f"Invalid credentials in Authorization header: {given}")  # it does echo
        return given is not None

    def _repo(self, name: str, revision: str | None = None, *, write: bool = False) -> tuple[Repo, str]:
        known = self._authorised()
        repo = self.server_hub.repos.get(name)
        if repo is None or (repo.private and not known):
            raise _Refused(404 if known else 401, "RepoNotFound", "Repository not found")
        if write and not known:
            raise _Refused(401, message="Invalid username or password.")
        if write and name.split("/")[0] != OWNER:
            raise _Refused(403, message=f"You don't have the rights to write to {name}")
        if repo.gated:
            raise _Refused(403, "GatedRepo", f"Access to model {name} is restricted")
        sha = repo.at(revision or "main")
        if sha is None:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, sha

    def _whoami(self) -> Any:
        if not self._authorised():
            raise _Refused(401, message="Invalid username or password.")
        return {"type": "user", "name": OWNER, "orgs": []}

    def _create(self, asked: dict[str, Any]) -> Any:
        if not self._authorised():
            raise _Refused(401, message="Invalid username or password.")
        owner = asked.get("organization") or OWNER
        name = f"{owner}/{asked['name']}"
        if owner != OWNER:
            raise _Refused(403, message=f"You don't have the rights to create a model under {owner!r}")
        if name in self.server_hub.repos:
            content = json.dumps(
                {"error": "You already created this model repo", "url": f"{self.server_hub.url}/{name}"}
            )
            return 409, {}, content.encode()
        self.server_hub.add(name, {}, private=asked.get("visibility") == "private")
        return {"url": f"{self.server_hub.url}/{name}", "name": name}

    def _validate(self, card: str) -> Any:
        match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
        try:
            data = yaml.safe_load(match[1]) if match else None
            problems = _metadata_problems(data)
        except yaml.YAMLError as error:
            problems = [str(error)]
        if problems:
            errors = [{"message": problem} for problem in problems]
            return 400, {}, json.dumps({"error": "Invalid metadata", "errors": errors}).encode()
        return {"errors": [], "warnings": []}

    def _info(self, name: str, revision: str | None) -> Any:
        repo, sha = self._repo(name, revision)
        files = [{"rfilename": path, "size": len(data)} for path, data in repo.commits[sha].items()]
        return {"id": name, "sha": sha, "private": repo.private, "gated": repo.gated, "siblings": files, "tags": []}

    def _list(self, query: dict[str, list[str]]) -> Any:
        """The models of an owner whose cards carry the tags that are asked for."""
        known = self._authorised()
        found = []
        for name, repo in self.server_hub.repos.items():
            owned = name.split("/")[0] in query.get("author", [OWNER]) and (known or not repo.private)
            match = re.match(rb"---\n(.*?)\n---\n", self.server_hub.main(name).get("README.md", b""), re.DOTALL)
            tags = (yaml.safe_load(match[1]) or {}).get("tags", []) if match else []
            if owned and set(query.get("filter", [])) <= set(tags):
                found.append({"id": name, "private": repo.private, "tags": tags})
        return found

    def _tree(self, name: str, revision: str) -> Any:
        repo, sha = self._repo(name, revision)
        return [self._entry(repo, path, data) for path, data in sorted(repo.commits[sha].items())]

    def _entry(self, repo: Repo, path: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
        if path in repo.lfs:
            entry["oid"] = _blob(b"pointer to " + data)
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry

    def _preupload(self, name: str, revision: str, asked: dict[str, Any]) -> Any:
        repo, sha = self._repo(name, revision, write=True)
        files = []
        for file in asked["files"]:
            path, there = file["path"], repo.commits[sha].get(file["path"])
            large = path.endswith(".safetensors")
            oid = None if there is None else hashlib.sha256(there).hexdigest() if large else _blob(there)
            mode = "lfs" if large else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": files}

    def _batch(self, name: str, asked: dict[str, Any]) -> Any:
        self._repo(name, write=True)
        objects = []
        for item in asked["objects"]:
            entry = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self.server_hub.objects:
                address = f"{self.server_hub.url}/lfs/{item['oid']}"
                entry["actions"] = {"upload": {"href": address}, "verify": {"href": f"{address}/verify"}}
            objects.append(entry)
        return {"transfer": "basic", "objects": objects}

    def _upload(self, oid: str, body: bytes) -> Any:
        if self.server_hub.fault_for(self.request_name, {"alter_upload"}):
            body = bytes([body[0] ^ 1]) + body[1:]
        if hashlib.sha256(body).hexdigest() != oid:
            raise _Refused(400, message="The SHA256 you specified did not match what we received")
        self.server_hub.objects[oid] = body
        return {}

    def _verify(self, oid: str) -> Any:
        if oid not in self.server_hub.objects:
            raise _Refused(404, message="no such object")
        return {}

    def _branch(self, name: str, branch: str, asked: dict[str, Any]) -> Any:
        repo, sha = self._repo(name, asked.get("startingPoint"), write=True)
        if branch in repo.branches:
            return 409, {}, b'{"error": "Reference already exists"}'
        repo.branches[branch] = sha
        return {}

    def _commit(self, name: str, branch: str, body: bytes) -> Any:
        repo, head = self._repo(name, branch, write=True)
        files = dict(repo.commits[head])
        for line in body.decode().splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "header":
                    if value.get("parentCommit") not in (None, head):
                        raise _Refused(412, message="A commit has happened since. Please refresh and try again.")
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    if value["oid"] not in self.server_hub.objects:
                        raise _Refused(400, message="LFS pointer pointed to a file that does not exist")
                    files[value["path"]] = self.server_hub.objects[value["oid"]]
                    repo.lfs.add(value["path"])
                case "deletedFile":
                    del files[value["path"]]
        sha = repo.commit(branch, files)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.server_hub.url}/{name}/commit/{sha}"}

    def _resolve(self, name: str, revision: str, path: str) -> tuple[int, dict[str, str], bytes]:
        repo, sha = self._repo(name, revision)
        data = repo.commits[sha].get(path)
        if data is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        etag = hashlib.sha256(data).hexdigest() if path in repo.lfs else _blob(data)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes", "Content-Type": "text/plain"}
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(match[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return 206, headers, data[start:]
        return 200, headers, data


def _blob(data: bytes) -> str:
    """git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _metadata_problems(data: Any) -> list[str]:
    """What the Hub would not accept of a card's metadata."""
    if not isinstance(data, dict):
        return ["metadata is not an object"]
    problems = [] if isinstance(data.get("license"), str) else ['"license" must be a string']
    if data.get("license") == "other" and not data.get("license_name"):
        problems.append('"license_name" is required')
    for dataset in data.get("datasets", []):
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(dataset)):
            problems.append(f'"datasets": {dataset!r} is no dataset id')
    for entry in data.get("model-index", []):
        for result in entry["results"]:
            for key, names in {"task": ("type",), "dataset": ("type", "name")}.items():
                problems += [f'"{key}.{n}" is required' for n in names if not isinstance(result[key].get(n), str)]
            for metric in result["metrics"]:
                if not isinstance(metric.get("type"), str) or not isinstance(metric.get("value"), (int, float)):
                    problems.append('"metrics" need a type and a number')
    return problems
