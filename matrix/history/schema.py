"""Tables of the history. A change here needs a migration beside it; a test compares the two."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "fk": "fk_%(table_name)s_%(referred_table_name)s"}
)

# Times are seconds since 1970, UTC: comparable on every database without a time zone.
runs = Table(
    "runs",
    metadata,
    Column("id", String(80), primary_key=True),
    Column("repository", String(200), nullable=False, default=""),
    Column("commit", String(64)),
    Column("base", String(64)),  # merge base of a pull request; null for a run of the base branch itself
    Column("branch", String(200)),
    Column("pr", Integer),
    Column("author", String(100)),
    Column("engine", String(20), nullable=False),
    Column("host", String(200), nullable=False),
    Column("spec_sha256", String(64), nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("status", String(12), nullable=False),
    Column("changed_files", JSON),
    Column("folder", Text),  # where logs are; null once retention removed them: a result outlives its log
    Column("archive", Text),  # name of its folder in the archive; null where it is not kept
    Index(None, "started"),
    Index(None, "pr"),
    Index(None, "commit"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("name", String(300), nullable=False),
    Column("suite", String(300), nullable=False),
    Column("status", String(12), nullable=False),
    Column("allowed", Boolean, nullable=False, default=False),
    Column("blocked_by", JSON, nullable=False),
    Column("verdict", String(20)),
    Column("card_model", String(80)),
    Column("started", Float),  # of the run, repeated so that one index serves the common question
    PrimaryKeyConstraint("run_id", "name"),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
    Index(None, "name", "started"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("job", String(300), nullable=False),
    Column("n", Integer, nullable=False),
    Column("status", String(12)),
    Column("exit_code", Integer),
    Column("signal", String(20)),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("peak_memory", Float),
    Column("log", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "job", "n"),
    ForeignKeyConstraint(["run_id", "job"], ["jobs.run_id", "jobs.name"], ondelete="CASCADE"),
)

causes = Table(
    "causes",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("job", String(300), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("category", String(60), nullable=False),
    Column("rule", String(100), nullable=False),
    Column("confidence", Float, nullable=False),
    Column("file", Text),
    Column("line", Integer),
    Column("text", Text, nullable=False),
    Column("rank", Integer),
    Column("tests", JSON, nullable=False),
    Column("signature", String(32), nullable=False),
    Column("started", Float, nullable=False),  # of the run
    PrimaryKeyConstraint("run_id", "job", "attempt", "position"),
    ForeignKeyConstraint(
        ["run_id", "job", "attempt"], ["attempts.run_id", "attempts.job", "attempts.n"], ondelete="CASCADE"
    ),
    Index(None, "signature", "started"),
    Index(None, "category", "started"),
)

test_results = Table(
    "test_results",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("job", String(300), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("test", String(500), nullable=False),
    Column("outcome", String(10), nullable=False),  # passed, failed, error, skipped
    Column("seconds", Float),
    Column("started", Float, nullable=False),  # of the run
    PrimaryKeyConstraint("run_id", "job", "attempt", "test"),
    ForeignKeyConstraint(
        ["run_id", "job", "attempt"], ["attempts.run_id", "attempts.job", "attempts.n"], ondelete="CASCADE"
    ),
    Index(None, "test", "started"),
    Index(None, "outcome", "started"),  # failures are few: the question for flaky tests starts from them
)

card_uses = Table(
    "card_uses",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("job", String(300), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("uuid", String(100), nullable=False),
    Column("index", Integer, nullable=False),
    Column("model", String(80), nullable=False),
    Column("host", String(200), nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    PrimaryKeyConstraint("run_id", "job", "attempt", "uuid"),
    ForeignKeyConstraint(
        ["run_id", "job", "attempt"], ["attempts.run_id", "attempts.job", "attempts.n"], ondelete="CASCADE"
    ),
    Index(None, "uuid", "started"),
)

coverage = Table(
    "coverage",
    metadata,
    Column("run_id", String(80), nullable=False),
    Column("file", String(500), nullable=False),
    Column("statements", Integer, nullable=False),  # lines that can run
    Column("covered", Integer, nullable=False),
    Column("changed", Integer, nullable=False),  # those of them that the change touches
    Column("changed_covered", Integer, nullable=False),
    PrimaryKeyConstraint("run_id", "file"),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", String(120), primary_key=True),  # of the reaction or the comment that gave it
    Column("at", Float, nullable=False),
    Column("author", String(100), nullable=False),
    Column("url", Text, nullable=False),
    Column("run_id", String(80)),
    Column("job", String(300)),
    Column("rule", String(100)),
    Column("category", String(60)),
    Column("verdict", String(20)),
    Column("confidence", Float),
    Column("right", Boolean, nullable=False),
    Column("corrected_category", String(60)),
    Column("corrected_line", Integer),
    Column("text", Text),  # the line that the correction names, else the one that was quoted
    Index(None, "category", "at"),
)
