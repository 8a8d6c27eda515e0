import pytest

from bot.commands import Command
from bot.policy import Policy, denial, parse_policy
from matrix.errors import UsageError

RERUN, ALL, TIMES = Command("rerun"), Command("rerun", everything=True), Command("rerun", ("x",), times=3)


def why(command, permission="read", *, author=False, association="CONTRIBUTOR", labels=(), spent=0, policy=None):
    return denial(
        policy or Policy(), command, user="ann", permission=permission, is_author=author,
        association=association, labels=frozenset(labels), spent=spent,
    )  # fmt: skip


def test_help_is_for_everyone_and_explain_for_readers():
    assert why(Command("help"), "none") is None
    assert why(Command("explain")) is None
    assert "read permission" in why(Command("explain"), "none")


def test_an_author_may_rerun_what_failed_but_no_more():
    assert why(RERUN, author=True) is None
    assert "write permission or the author" in why(RERUN)
    for command in (ALL, TIMES, Command("cancel"), Command("quarantine", ("t",))):
        assert "write permission" in why(command, author=True)
        assert why(command, "write") is None


def test_a_newcomer_waits_for_the_label():
    assert "ok-to-test" in why(RERUN, author=True, association="FIRST_TIME_CONTRIBUTOR")
    assert why(RERUN, author=True, association="NONE", labels=["ok-to-test"]) is None


def test_the_budget_of_a_day_holds_except_for_admins():
    assert "30 re-runs" in why(RERUN, "write", spent=30)
    assert why(RERUN, "admin", spent=30) is None
    assert why(Command("explain"), spent=99) is None


def test_trusted_logins_count_as_writers():
    assert why(ALL, policy=Policy(trusted=("ann",))) is None


def test_a_policy_file_changes_who_may():
    policy = parse_policy("commands:\n  cancel: {permission: read}\nreruns_per_user_per_day: 2\n")
    assert why(Command("cancel"), policy=policy) is None
    assert "2 re-runs" in why(RERUN, "write", spent=2, policy=policy)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", ":1: not YAML"),
        ("comands: {}", "comands"),
        ("commands: {fly: {}}", "commands.fly: no such command"),
        ("commands: {rerun: {permission: root}}", "commands.rerun.permission"),
        ("reruns_per_user_per_day: -1", "reruns_per_user_per_day"),
        ("!!python/object/apply:os.system [id]", "not YAML"),
    ],
)
def test_a_bad_policy_file_is_an_error_with_its_place(text, says):
    with pytest.raises(UsageError) as e:
        parse_policy(text)
    assert says in e.value.message


def test_no_file_and_an_empty_file_are_the_defaults():
    assert parse_policy(None) == parse_policy("") == Policy()
