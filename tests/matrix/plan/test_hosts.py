import pytest

from matrix.errors import UsageError
from matrix.plan.hosts import Card, Host, card_suits, hosts_file, pretended, read_hosts
from matrix.spec.job import Cards
from matrix.spec.problems import SpecError


def write(folder, text):
    path = folder / "hosts.yaml"
    path.write_text(text)
    return path


def test_a_hosts_file_says_what_each_host_has(tmp_path):
    hosts = read_hosts(
        write(
            tmp_path,
            """
hosts:
  gpu-3: {cards: 8, model: H20, memory: 1T}
  mixed: {cards: [{model: H20, count: 4}, {model: A100, count: 2}], cpu_jobs: 16}
  cpu-1: {}
""",
        )
    )
    assert [(h.name, len(h.cards), h.memory, h.cpu_jobs) for h in hosts] == [
        ("gpu-3", 8, 1 << 40, None),
        ("mixed", 6, None, 16),
        ("cpu-1", 0, None, None),
    ]
    assert [c.model for c in hosts[1].cards] == ["H20"] * 4 + ["A100"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hosts.yaml:1: must be a mapping"),
        ("hosts: {}", "hosts.yaml:1: hosts: must not be empty"),
        ("hosts:\n  a: {card: 3}", "hosts.yaml:2: hosts.a.card: unknown key 'card': did you mean 'cards'"),
        ("hosts:\n  a: {cards: many}", "hosts.yaml:2: hosts.a.cards.*: must be a whole number, not 'many'"),
        ("hosts:\n  a: {memory: 5}", "hosts.yaml:2: hosts.a.memory: bad size '5'"),
        ("hosts:\n  a: {model: H20, cards: {model: H20, count: 2}}", "keep one"),
        ("hosts: [", "hosts.yaml:2: not YAML"),
    ],
)
def test_mistakes_in_a_hosts_file_are_told_with_lines(tmp_path, text, message):
    with pytest.raises(SpecError, match=message):
        read_hosts(write(tmp_path, text))


def test_the_named_hosts_file_must_be_there(tmp_path):
    path = write(tmp_path, "hosts: {a: {}}")
    assert hosts_file({"MATRIX_HOSTS": str(path)}) == path
    with pytest.raises(UsageError, match="there is no such file"):
        hosts_file({"MATRIX_HOSTS": str(tmp_path / "none.yaml")})


@pytest.mark.parametrize(
    ("card", "model", "suits"),
    [
        ("H20", "H20", True),
        ("NVIDIA H20-3e", "h20", True),
        ("NVIDIA H200", "H20", False),
        ("NVIDIA A100-SXM4-80GB", "A100", True),
        (None, "H20", False),
        (None, None, True),
        ("H20", None, True),
    ],
)
def test_a_model_is_a_word_of_the_drivers_name(card, model, suits):
    assert card_suits(Card("0", card), model) is suits


def test_whether_a_job_fits_a_host():
    host = Host("h", (Card("0", "H20"), Card("1", "H20"), Card("2", "A100")))
    assert host.fits(Cards(3))
    assert host.fits(Cards(2, "H20"))
    assert not host.fits(Cards(2, "A100"))
    assert pretended(2).fits(Cards(2, "H20"))
