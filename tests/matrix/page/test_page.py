"""The page as browsers and programs see it."""

from urllib.parse import quote

import pytest
from openapi_spec_validator import validate

from matrix.records import load
from matrix.report import html
from tests.matrix.page.pages import HOSTILE, RUN, look_at, serving

PAGES = [
    "/",
    f"/runs/{RUN}",
    f"/runs/{RUN}/jobs/sft",
    f"/runs/{RUN}/jobs/{quote('pre@tp=2')}",
    f"/runs/{RUN}/log/logs/sft/1.log",
    "/history?since=90d",
    "/nothing",
]


def test_a_run_shows_causes_cards_and_hand_offs(served):
    text = served.get(f"/runs/{RUN}").text
    for part in (
        "worker_exception",
        "H20 #0",
        "blocked by sft",
        "Hand-offs between 3 jobs",
        f"line={served.bad}#L{served.bad}",
        "The program raised an exception of its own",
        "matrix rerun 20261201-093011-7f3a sft",
        "09:30:11 UTC",
    ):
        assert part in text, part


def test_text_of_strangers_stays_text(served):
    for path in PAGES:
        assert HOSTILE not in served.get(path).text, path
    assert "script-src 'self'" in served.get("/").headers["content-security-policy"]


def test_a_log_opens_at_its_cause_and_anywhere_else(served):
    base = f"/runs/{RUN}/log/logs/sft/1.log"
    text = served.get(base).text
    assert f'id="L{served.bad}" class="hit"' in text
    assert "worker_exception</b>" in text
    assert 'id="L1"' in served.get(f"{base}?line=1").text
    assert "lines 1601 to 2000 of 2000" in served.get(f"{base}?line=999999").text
    assert served.get(f"{base}?line=x").ok
    raw = served.get(f"/runs/{RUN}/raw/logs/sft/1.log")
    assert raw.text.count("\n") == 2000
    assert raw.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "path",
    [
        "run.json",
        "logs/../run.json",
        "logs/%2e%2e/run.json",
        "logs/../../../history.sqlite",
        "logs/nothing",
        "logs",
        "/etc/passwd",
    ],
)
def test_only_logs_of_the_run_are_read(served, path):
    for kind in ("log", "raw"):
        assert served.get(f"/runs/{RUN}/{kind}/{path}").status_code == 404


@pytest.mark.parametrize("run", ["..", "x", "%2e%2e", "a%00b", "a" * 500])
def test_a_run_that_is_none_is_not_there(served, run):
    assert served.get(f"/runs/{run}").status_code in (404, 200 if run in ("..", "%2e%2e") else 404)


def test_losses_stand_beside_the_baseline_with_the_first_difference(served):
    text = served.get(f"/runs/{RUN}/jobs/{quote('pre@tp=2')}").text
    assert "The first step that is not bit-equal to <code>base.txt</code> is 60." in text
    answer = served.get(f"/api/runs/{RUN}/jobs/{quote('pre@tp=2')}/losses").json()
    assert len(answer["found"]) == 100
    assert [u[1] > 0 for u in answer["ulps"]].index(True) == 59


def test_what_is_remembered_is_shown_with_intervals(served):
    text = served.get("/history?since=90d").text
    for part in (
        "Flaky tests",
        "oom",
        "GPU-3",
        "6 of 8",
        "unit-3",
        "branches",
        " UTC</td>",
        "No failure has a verdict",
    ):
        assert part in text, part
    answer = served.get("/api/history?since=90d").json()
    assert answer["results"] == 2000
    assert all(f["low"] <= f["failed"] / f["ran"] <= f["high"] for f in answer["flaky"])
    assert served.get("/api/history?since=soon").status_code == 400
    assert served.get("/history?since=soon").status_code == 400


def test_the_api_answers_as_it_is_described(served):
    import requests
    from openapi_core import OpenAPI
    from openapi_core.contrib.requests import RequestsOpenAPIRequest, RequestsOpenAPIResponse

    document = served.get("/api/openapi.json").json()
    validate(document)
    api = OpenAPI.from_dict(document | {"servers": [{"url": served.base}]})
    job = quote("pre@tp=2")
    for path in [
        "/api/runs",
        f"/api/runs/{RUN}",
        f"/api/runs/{RUN}/jobs/{job}",
        f"/api/runs/{RUN}/jobs/{job}/losses",
        "/api/history",
        "/api/runs/none",
    ]:
        request = requests.Request("GET", served.base + path)
        api.validate_response(RequestsOpenAPIRequest(request), RequestsOpenAPIResponse(served.get(path)))


def test_prometheus_reads_the_metrics(served):
    from prometheus_client.parser import text_string_to_metric_families

    found = {m.name: m for m in text_string_to_metric_families(served.get("/metrics").text)}
    assert {"matrix_runs", "matrix_flaky_tests", "matrix_card_hours", "matrix_failures"} <= set(found)
    assert {s.labels["status"]: s.value for s in found["matrix_newest_run_jobs"].samples} == {
        "passed": 1,
        "failed": 1,
        "blocked": 1,
    }


def test_it_only_reads_and_only_under_its_own_name(served):
    import requests

    assert requests.post(served.base + "/", timeout=10).status_code == 405
    assert served.get("/", headers={"Host": "evil.example"}).status_code == 400


EVERY_LOOK = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]


@pytest.mark.parametrize("looks", [[("light", 1280), ("dark", 390)], pytest.param(EVERY_LOOK, marks=pytest.mark.soak)])
def test_in_chromium_nothing_is_in_the_way_of_anybody(served, tmp_path, looks):
    folder = served.root / ".matrix/runs" / RUN
    report = tmp_path / "report.html"
    report.write_text(html.render(load(folder / "run.json"), folder))
    *seen, static = _of_each_look(
        look_at([*(served.base + p for p in PAGES), report.as_uri()], looks=looks), len(looks)
    )
    assert len(seen) == len(PAGES)
    for page in (look for same in seen for look in same):
        where = (page["url"], page["scheme"], page["width"])
        assert page["violations"] == [], where
        assert not page["wide"], where
        assert page["first"] == "To the content", where
        assert page["errors"] == [] or "/nothing" in page["url"], (where, page["errors"])
    links = {link.split("#")[0] for same in seen for link in same[0]["links"] if "/nothing" not in link}
    for link in links:
        assert served.get(link.removeprefix(served.base)).ok, link
    assert [(s["violations"], s["wide"], s["errors"]) for s in static] == [([], False, [])] * len(looks)
    assert {link.removeprefix(tmp_path.as_uri()) for link in static[0]["links"]} >= {"/logs/sft/1.log"}


def _of_each_look(seen, looks):
    """Put together what was seen of each page."""
    pages = len(seen) // looks
    return [seen[n::pages] for n in range(pages)]


@pytest.mark.soak
def test_a_large_history_and_a_large_log_open_within_a_second(tmp_path):
    with serving(tmp_path, log_lines=700_000, results=100_000) as page:
        assert (page.root / f".matrix/runs/{RUN}/logs/sft/1.log").stat().st_size > 35_000_000
        page.get("/")  # what is loaded at the first request is loaded
        for path in PAGES[:-1]:
            began = page.get(path)
            print(path, began.elapsed.total_seconds())
        seen = page.chromium(PAGES[:-1])
        for one in seen:
            print(one["url"], round(one["interactive"]))
        assert all(not one["violations"] for one in seen)
