"""The double's plumbing: HTTP on loopback, validation by the OpenAPI document, faults, a journal of what was asked."""

from __future__ import annotations

import collections
import functools
import gzip
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from openapi_core import OpenAPI
from openapi_core.contrib.werkzeug import WerkzeugOpenAPIRequest, WerkzeugOpenAPIResponse
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from fake_github.api import ROUTES, Api
from fake_github.world import ApiError

DOCUMENT = Path(__file__).parents[2] / "data" / "github" / "openapi.json.gz"
HOST = "http://api.double.invalid"  # in the document; replaced by the real address in what is sent
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
}


@dataclass
class Fault:
    """An answer to give instead of the real one; with `after` the request takes effect, only its answer is lost."""

    status: int
    body: dict = field(default_factory=lambda: {"message": "Server Error"})
    headers: dict = field(default_factory=dict)
    pattern: str = ""
    after: bool = False

    @classmethod
    def secondary(cls, pattern="", wait="0"):
        return cls(403, SECONDARY, {"Retry-After": wait}, pattern)


def allow_null_in_nullable_enums(node):
    """OpenAPI 3.0 wants null listed in a nullable enum; GitHub's document omits it (conclusion of a running job)."""
    for v in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        allow_null_in_nullable_enums(v)
    if isinstance(node, dict) and node.get("nullable") is True and None not in node.get("enum", [None]):
        node["enum"].append(None)


@functools.lru_cache(maxsize=1)
def document():
    """The document and its checker; made once, since it takes half a second."""
    doc = json.loads(gzip.decompress(DOCUMENT.read_bytes()).decode().replace("https://api.github.com", HOST))
    doc["servers"] = [{"url": HOST}]
    allow_null_in_nullable_enums(doc)
    return doc["components"]["examples"], OpenAPI.from_dict(doc)


class _Quiet(WSGIRequestHandler):
    def log(self, *args):
        pass


class FakeGitHub(Api):
    """Start it with `start()`; the repository is `octo/repo`, and whoever has a token is `actor`."""

    def __init__(self, full_name="octo/repo", actor="ci-bot[bot]"):
        super().__init__(full_name, actor)
        self.journal, self.violations, self.faults = [], [], collections.deque()
        self.calls = 0
        self.fault_at: dict[int, Fault] = {}  # number of the API call, from 1 -> fault
        self.blob_requests = []
        self.remaining, self.strict = 5000, True
        self.urls = Map([Rule(path, methods=[method], endpoint=handler) for method, path, handler in ROUTES])
        self.examples, self.openapi = document()

    def start(self):
        self.server = make_server("127.0.0.1", 0, self.wsgi, threaded=True, request_handler=_Quiet)
        self.base = f"http://127.0.0.1:{self.server.port}"
        self.blob = f"http://localhost:{self.server.port}/_blob"  # another host name, as blob storage has
        self.examples = json.loads(json.dumps(self.examples).replace(HOST, self.base))
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.server.shutdown()
        self.thread.join(5)
        self.server.server_close()

    def writes(self):
        """(method, path) of every request that was no GET."""
        return [(m, p) for m, p, _ in self.journal if m != "GET"]

    def wsgi(self, environ, start):
        q = Request(environ)
        if q.path.startswith("/_blob/"):
            return self._blob(q)(environ, start)
        with self.lock:
            response = self._api(q)
        return response(environ, start)

    def _blob(self, q):
        self.blob_requests.append(q.path)
        if "Authorization" in q.headers:  # as Azure answers to a foreign token
            return Response("<Error><Code>InvalidAuthenticationInfo</Code></Error>", 401, mimetype="application/xml")
        _, _, kind, ident = q.path.split("/")
        try:
            with self.lock:
                data = self.blob_of(kind, ident)
        except (KeyError, IndexError, AttributeError):
            return Response("The specified blob does not exist.", 404)
        return Response(data, mimetype="text/plain" if kind == "job" else "application/zip")

    def _fault(self, q):
        if fault := self.fault_at.pop(self.calls, None):
            return fault
        if self.faults and re.search(self.faults[0].pattern, f"{q.method} {q.path}"):
            return self.faults.popleft()
        return None

    def _api(self, q):
        self.calls += 1
        self.journal.append((q.method, q.full_path.rstrip("?"), q.get_data(as_text=True)))
        fault = self._fault(q)
        if fault and not fault.after:
            return self._send(fault.body, fault.status, {**self._rate(), **fault.headers})
        known = not self.app_key or "/access_tokens" in q.path or q.authorization.token in self.tokens[-1:]
        if not q.headers.get("Authorization") or not known:
            problem = {"message": "Requires authentication", "documentation_url": "https://docs.github.com/rest"}
            return self._send(problem, 401, self._rate())
        response = self._answer(q)
        return self._send(fault.body, fault.status, {**self._rate(), **fault.headers}) if fault else response

    def _rate(self):
        self.remaining -= 1
        used = 5000 - self.remaining
        rate = {"Limit": 5000, "Remaining": self.remaining, "Reset": 4102444800, "Used": used}
        return {f"X-RateLimit-{k}": str(v) for k, v in rate.items()} | {"X-RateLimit-Resource": "core"}

    def _answer(self, q):
        rate = self._rate()
        try:
            # As it was sent: a slash inside a name (`release%2F1.0`) parts nothing.
            raw = q.environ.get("REQUEST_URI", q.path).partition("?")[0]
            handler, arguments = self.urls.bind("").match(raw, q.method)
            arguments = {k: unquote(v) if isinstance(v, str) else v for k, v in arguments.items()}
            if arguments.pop("owner", self.owner) + "/" + arguments.pop("name", self.name) != self.full_name:
                raise NotFound
            asked = WerkzeugOpenAPIRequest(q)
            asked.request = q
            if self.strict:
                self._check_request(asked, q)
            out = getattr(self, "h_" + handler)(q, **arguments)
            out = out if isinstance(out, tuple) else (out, 200)
            data, status, headers = out if len(out) == 3 else (*out, {})
            response = self._send(data, status, {**rate, **headers})
            if self.strict and status != 302:
                self._check_response(asked, q, response)
            if q.method == "GET" and status == 200:
                response = self._tagged(q, response, rate)
        except ApiError as p:
            return self._send(p.body, p.status, {**rate, **p.headers})
        except (KeyError, IndexError, HTTPException):
            body = {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}
            return self._send(body, 404, rate)
        return response

    def _tagged(self, q, response, rate):
        tag = f'W/"{hashlib.sha256(response.get_data()).hexdigest()}"'
        if q.headers.get("If-None-Match") == tag:
            self.remaining += 1  # free of the primary limit
            return self._send(None, 304, {**rate, "ETag": tag})
        response.headers["ETag"] = tag
        return response

    def _check_request(self, asked, q):
        errors = [str(getattr(e, "__cause__", None) or e) for e in self.openapi.iter_request_errors(_Hosted(asked))]
        errors = [e for e in errors if "ecurity" not in e]
        if errors:
            self.violations.append(("request", q.method, q.path, errors[0][:300]))
            raise ApiError(422, "Invalid request.\n\n" + errors[0][:300])

    def _check_response(self, asked, q, response):
        for e in self.openapi.iter_response_errors(_Hosted(asked), WerkzeugOpenAPIResponse(response)):
            cause = e.__cause__ or e
            why = [
                f"{'/'.join(map(str, x.absolute_path))}: {x.message[-160:]}"
                for x in getattr(cause, "schema_errors", [])
            ]
            self.violations.append(("response", q.method, q.path, (why or [str(cause)[:300]])[:4]))

    def _send(self, data, status, headers):
        body = b"" if data is None else json.dumps(data).encode()
        return Response(body, status, headers, content_type="application/json; charset=utf-8" if body else None)


class _Hosted:
    """A request as if it had been sent to the document's host."""

    def __init__(self, request):
        self._request = request

    def __getattr__(self, name):
        return getattr(self._request, name)

    @property
    def host_url(self):
        return HOST

    @property
    def path(self):
        """The path; a file's whole path and a name with slashes are one parameter, which the checker wants in one segment."""
        head, contents, file = self._request.path.partition("/contents/")
        if contents:
            return head + contents + file.replace("/", "%2F")
        return self._request.request.environ.get("REQUEST_URI", head).partition("?")[0]
