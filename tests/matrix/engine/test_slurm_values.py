"""The Slurm engine's pure parts: what Slurm's commands print, what a job asks for, what an end means."""

import pytest

from matrix.engine.base import Outcome
from matrix.engine.slurm.cluster import (
    Entry,
    Node,
    clean_environment,
    is_transient,
    parse_gres,
    parse_nodes,
    parse_queue,
)
from matrix.engine.slurm.fate import fate, never, never_starts, put_back
from matrix.engine.slurm.files import Exchange, outcome_document, read_outcome
from matrix.engine.slurm.fit import Fit, arguments, fit
from matrix.engine.slurm.logs import merge_logs, remark
from matrix.engine.slurm.rendezvous import Rendezvous
from matrix.engine.slurm.several import combine
from matrix.errors import UsageError
from matrix.host.gpus import Card
from matrix.spec.job import Cards

CLUSTER = [
    Node("a1", {"h20": 8}), Node("a2", {"h20": 8}), Node("b1", {"H200": 4}), Node("c1", {}),
    Node("a1", {"h20": 8}, partition="second"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("gpu:H20:4", {"H20": 4}),
        ("gpu:h20:8(S:0-1),shard:16", {"h20": 8}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:4,gpu:h20:4", {"a100": 4, "h20": 4}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_cards_of_a_node(text, cards):
    assert parse_gres(text) == cards


def test_nodes_and_queue_are_read():
    assert parse_nodes("gpu1|gpu:H20:4|8000|gpu*\nbad line\n") == [Node("gpu1", {"H20": 4}, 8000 << 20, "gpu")]
    assert parse_queue("7|RUNNING|None|gpu1|r/a|b@x=1/1\n\n") == [Entry("7", "RUNNING", "None", "gpu1", "r/a|b@x=1/1")]


@pytest.mark.parametrize(
    ("want", "nodes", "expected"),
    [
        (Cards(0), None, Fit(1, 0)),
        (Cards(0), 3, Fit(3, 0)),
        (Cards(4), None, Fit(1, 4)),
        (Cards(8, "H20"), None, Fit(1, 8, "h20")),
        (Cards(16, "H20"), None, Fit(2, 8, "h20")),
        (Cards(4, "H20"), 2, Fit(2, 2, "h20")),
        (Cards(10, "H20"), None, Fit(2, 5, "h20")),
        (Cards(4, "H200"), None, Fit(1, 4, "H200")),
        (Cards(12), None, Fit(2, 6)),
    ],
)
def test_a_job_takes_the_fewest_nodes_that_have_its_cards(want, nodes, expected):
    assert fit("job", want, nodes, CLUSTER) == expected


@pytest.mark.parametrize(
    ("want", "nodes"), [(Cards(8, "H200"), None), (Cards(1, "B200"), None), (Cards(0), 9), (Cards(8, "H20"), 4)]
)
def test_a_job_that_no_node_fits_is_refused_with_what_there_is(want, nodes):
    with pytest.raises(UsageError, match=r"job asks for .*the cluster has"):
        fit("job", want, nodes, CLUSTER)


def test_arguments_of_sbatch(tmp_path):
    made = arguments(
        Fit(2, 4, "h20"), name="run/a/1", output=tmp_path / "100%" / "o", timeout=90, memory=(3 << 30) + 1,
        env={"MATRIX_SLURM_ARGS": "--account 'my team' --exclusive"},
    )  # fmt: skip
    assert {"--nodes=2", "--gres=gpu:h20:4", "--mem=3073M", "--no-requeue", "--job-name=run/a/1"} <= set(made)
    assert f"--output={tmp_path}/100%%/o" in made
    assert made[-3:] == ["--account", "my team", "--exclusive"]
    minutes = next(int(word.removeprefix("--time=")) for word in made if word.startswith("--time="))
    assert minutes * 60 >= 90 + 60  # Slurm's limit must never come before ours


def test_broken_arguments_of_the_site_are_a_users_error(tmp_path):
    with pytest.raises(UsageError, match="MATRIX_SLURM_ARGS"):
        arguments(Fit(), name="x", output=tmp_path, timeout=1, memory=None, env={"MATRIX_SLURM_ARGS": "'open"})


def test_the_runners_environment_stays_out_of_the_batch_script():
    env = {"PATH": "/bin", "TOKEN": "secret", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "SBATCH_PARTITION": "gpu"}
    assert clean_environment(env) == {"PATH": "/bin", "SLURM_CONF": "/c", "SBATCH_PARTITION": "gpu"}


@pytest.mark.parametrize(
    ("said", "transient"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", True),
        ("Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", True),
        ("sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification", False),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", False),
        ("sbatch: error: invalid partition specified: nope", False),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(said, transient):
    assert is_transient(said) is transient


@pytest.mark.parametrize(
    ("state", "why", "moved"),
    [
        ("NODE_FAIL", "lost", True),
        ("PREEMPTED", "lost", True),
        ("CANCELLED+", "cancel", False),
        ("CANCELLED by 0", "cancel", False),
        ("TIMEOUT", "timeout", False),
        ("OUT_OF_MEMORY", "lost", False),
        ("FAILED", "lost", False),
        (None, "lost", True),
    ],
)
def test_what_a_state_of_slurm_means(state, why, moved):
    told = fate(state, "gpu1", "python: not found")
    assert (told.why, told.moved) == (why, moved)
    if state == "FAILED":
        assert "python: not found" in told.text


def test_a_script_that_never_got_to_the_job_may_be_started_elsewhere_and_its_reason_is_told():
    told = fate("FAILED", "gpu[1-2]", "", "JobLaunchFailure", began=False)
    assert (told.why, told.moved) == ("lost", True)
    assert told.text == (
        "Slurm could not start the job's script (gpu[1-2]): FAILED (JobLaunchFailure): "
        "is the folder of the run on that node too, at the same place?"
    )
    assert "(NonZeroExitCode)" in fate("FAILED", "gpu1", "", "NonZeroExitCode").text


def test_a_job_that_is_in_the_queue_again_after_its_end_was_put_back():
    assert put_back(Entry("1", "PENDING", "BeginTime", "", "")).moved
    assert put_back(Entry("1", "COMPLETING", "None", "gpu1", "")) is None
    assert put_back(None) is None


def test_why_a_job_would_wait_for_ever_is_said_in_words():
    assert never(Entry("1", "PENDING", "PartitionTimeLimit", "", "")) == (
        "Slurm would let the job wait for ever: its `timeout` is longer than the partition allows (PartitionTimeLimit)"
    )


def test_only_a_pending_job_with_a_hopeless_reason_never_starts():
    assert never_starts(Entry("1", "PENDING", "PartitionTimeLimit", "", ""))
    assert not never_starts(Entry("1", "PENDING", "Resources", "", ""))
    assert not never_starts(Entry("1", "RUNNING", "PartitionTimeLimit", "", ""))


def said(by=None, **changes):
    fields = {"why": "exit", "exit_code": 0, "signal": None, "started": 1.0, "ended": 9.0, **changes}
    return {"by": by, "node": "n", "outcome": outcome_document(Outcome(**fields))}


def test_an_outcome_survives_its_way_through_a_file():
    out = Outcome("exit", 137, "SIGKILL", 1.0, 2.0, 3, (4, 5), 6, "x", (Card("GPU-1", 0, "H20"),), moved=True)
    assert read_outcome(outcome_document(out)) == out


def test_several_nodes_end_as_the_first_that_failed_by_itself():
    out = combine(
        [said("node 1", why="cancel", exit_code=143, ended=5.0), said(exit_code=3, ended=6.0), said(ended=7.0)]
    )
    assert (out.why, out.exit_code, out.started, out.ended) == ("exit", 3, 1.0, 7.0)


def test_several_nodes_that_all_end_well_end_well_together():
    cards = [(Card("a-0", 0, "H20"),), (Card("b-0", 0, "H20"),)]
    out = combine([said(cards=cards[0], peak_memory=5), said(started=0.5, cards=cards[1], peak_memory=7)])
    assert (out.why, out.exit_code, out.started, out.peak_memory) == ("exit", 0, 0.5, 7)
    assert [card.uuid for card in out.cards] == ["a-0", "b-0"]


def test_logs_of_nodes_are_joined_in_the_order_of_their_stamps(tmp_path):
    exchange = Exchange(tmp_path)
    for rank, lines in enumerate((["10.000001Z a", "10.000003Z c"], ["10.000002Z b", "10.000004Z \xe4 no end"])):
        exchange.node(rank).mkdir()
        text = "\n".join(f"2026-12-01T09:30:{line}" for line in lines)
        exchange.node_log(rank).write_bytes(text.encode("latin-1"))
    merge_logs(exchange, 3, tmp_path / "1.log")
    lines = (tmp_path / "1.log").read_bytes().splitlines()
    assert [line[28:] for line in lines] == [b"0: a", b"1: b", b"0: c", b"1: \xe4 no end"]


@pytest.mark.parametrize(("before", "line"), [(b"", 1), (b"a\nb\n", 3), (b"a\nhalf", 3)])
def test_a_remark_at_the_end_of_a_log_knows_its_line(tmp_path, before, line):
    log = tmp_path / "1.log"
    log.write_bytes(before)
    assert remark(log, "the node was lost") == line
    assert log.read_text().splitlines()[line - 1].endswith("[matrix] the node was lost")


def test_a_stop_that_only_counts_first_does_not_replace_another(tmp_path):
    exchange = Exchange(tmp_path)
    exchange.folder.mkdir()
    assert exchange.stop("cancel")
    assert not exchange.stop("node 1", first=True)
    assert exchange.stopped() == "cancel"
    assert exchange.stop("kill")
    assert exchange.stopped() == "kill"


def test_every_launcher_finds_the_other_nodes():
    env = Rendezvous("10.0.0.1", 29500, 2, 1, 4, "77").environment()
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["NNODES"], env["NODE_RANK"]) == ("10.0.0.1", "29500", "2", "1")
    assert (env["PADDLE_MASTER"], env["PADDLE_NNODES"], env["PADDLE_RANK"]) == ("10.0.0.1:29500", "2", "1")
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"], env["PADDLE_NPROC_PER_NODE"]) == ("2", "4", "4")
    assert "PET_NPROC_PER_NODE" not in Rendezvous("h", 1, 2, 0, 0, "1").environment()
