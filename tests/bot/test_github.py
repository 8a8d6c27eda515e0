import pytest
from fake_github import Fault

from bot.github import Budget, BudgetError, ETags, GitHubError

SHA = "a" * 40


@pytest.fixture
def gh(fake, connect):
    fake.add_pull(7, SHA, files=[f"f{i}.py" for i in range(250)])
    return connect()


def posted(gh, body="<!-- m -->"):
    return lambda: next((c for c in gh.pages("/issues/7/comments") if c["body"] == body), None)


def test_lists_are_read_to_their_end(fake, gh):
    fake.page_max = 100
    assert [f["filename"] for f in gh.pages("/pulls/7/files")] == [f"f{i}.py" for i in range(250)]
    assert len(list(gh.pages("/pulls/7/files", most=120))) == 120


def test_an_unchanged_answer_costs_no_budget_and_no_rate(fake, gh):
    gh.get("/pulls/7")
    before, remaining = gh.budget.used, fake.remaining
    assert gh.get("/pulls/7")["head"]["sha"] == SHA
    assert (gh.budget.used, fake.remaining) == (before, remaining)
    fake.push(7, "c" * 40)
    assert gh.get("/pulls/7")["head"]["sha"] == "c" * 40


def test_remembered_answers_are_bounded():
    tags = ETags(most=3)
    for i in range(10):
        tags.keep(f"u{i}", "t", "b", {})
    assert list(tags.kept) == ["u7", "u8", "u9"]


@pytest.mark.parametrize("fault", [Fault(502), Fault(500), Fault(503), Fault.secondary()])
def test_an_edit_is_repeated_until_it_is_answered(fake, gh, fault):
    c = fake.add_comment(7, "v1", fake.actor)
    fault.pattern = "PATCH"
    fake.faults += [fault, fault]
    gh.patch(f"/issues/comments/{c}", {"body": "v2"})
    assert fake.comments_of(7) == ["v2"]


@pytest.mark.parametrize("fault", [Fault(502), Fault(502, after=True), Fault.secondary()])
def test_a_comment_is_posted_once_whether_or_not_the_answer_was_lost(fake, gh, fault):
    fake.faults.append(Fault(fault.status, fault.body, fault.headers, "POST", fault.after))
    made = gh.post("/issues/7/comments", {"body": "<!-- m -->"}, done=posted(gh))
    assert fake.comments_of(7) == ["<!-- m -->"]
    assert made["body"] == "<!-- m -->"


def test_a_refusal_is_not_repeated(fake, gh):
    fake.faults.append(Fault(403, {"message": "Resource not accessible by integration"}, {}, "POST"))
    with pytest.raises(GitHubError, match="403") as e:
        gh.post("/issues/7/comments", {"body": "x"}, done=lambda: None)
    assert e.value.status == 403
    assert len(fake.writes()) == 1


def test_a_server_that_stays_down_is_an_error_not_a_loop(fake, gh):
    fake.faults += [Fault(502)] * 40
    with pytest.raises(GitHubError):
        gh.patch("/issues/comments/1", {"body": "x"})
    with pytest.raises(GitHubError):
        gh.get("/pulls/7")


def test_no_server_is_an_error(connect, fake):
    gh = connect(total=0)
    fake.stop()
    with pytest.raises(GitHubError, match="no answer"):
        gh.get("/pulls/7")
    fake.start()


def test_the_budget_of_an_event_is_kept(fake, connect):
    fake.add_pull(7, SHA)
    gh = connect(budget=Budget(3), etags=ETags(1))
    for i in range(3):
        gh.get(f"/commits/{i:040x}")
    with pytest.raises(BudgetError, match="3 requests"):
        gh.get("/pulls/7")
    assert fake.calls == 3


def test_a_log_is_fetched_without_the_token_and_bounded(fake, gh):
    rid = fake.add_run(SHA, [("unit", "failure", "boom\n" * 100), ("gone", "failure", None)])
    unit, gone = fake.run_map[rid]["attempts"][0]
    url = gh.location(f"/actions/jobs/{unit}/logs")
    assert gh.download(url, 10_000) == b"boom\n" * 100
    assert gh.download(url, 7) == b"boom\nbo"
    assert gh.location(f"/actions/jobs/{gone}/logs") is None
    fake.log_text[unit] = None
    assert gh.download(url, 10) is None


@pytest.mark.parametrize(
    "url", ["http://evil.invalid/x", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data"]
)
def test_a_redirect_elsewhere_than_https_is_refused(gh, url):
    with pytest.raises(GitHubError, match="refused"):
        gh.download(url, 10)


def test_deleting_what_is_gone_is_fine(gh):
    gh.delete("/issues/comments/999")


def test_what_is_not_there_is_none(gh):
    assert gh.find("/pulls/99") is None
