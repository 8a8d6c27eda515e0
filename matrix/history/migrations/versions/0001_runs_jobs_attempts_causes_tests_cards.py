"""runs, jobs, attempts, causes, tests, cards."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("repository", sa.String(length=200), nullable=False),
        sa.Column("commit", sa.String(length=64), nullable=True),
        sa.Column("base", sa.String(length=64), nullable=True),
        sa.Column("branch", sa.String(length=200), nullable=True),
        sa.Column("pr", sa.Integer(), nullable=True),
        sa.Column("author", sa.String(length=100), nullable=True),
        sa.Column("engine", sa.String(length=20), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("spec_sha256", sa.String(length=64), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("changed_files", sa.JSON(), nullable=True),
        sa.Column("folder", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_commit"), ["commit"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_pr"), ["pr"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_started"), ["started"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("suite", sa.String(length=300), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("blocked_by", sa.JSON(), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("card_model", sa.String(length=80), nullable=True),
        sa.Column("started", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_jobs_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name"),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_name_started"), ["name", "started"], unique=False)

    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.String(length=20), nullable=True),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("peak_memory", sa.Float(), nullable=True),
        sa.Column("log", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "job"], ["jobs.run_id", "jobs.name"], name=op.f("fk_attempts_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "job", "n"),
    )
    op.create_table(
        "card_uses",
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=100), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=80), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "job", "attempt"],
            ["attempts.run_id", "attempts.job", "attempts.n"],
            name=op.f("fk_card_uses_attempts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "job", "attempt", "uuid"),
    )
    with op.batch_alter_table("card_uses", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_card_uses_uuid_started"), ["uuid", "started"], unique=False)

    op.create_table(
        "causes",
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("category", sa.String(length=60), nullable=False),
        sa.Column("rule", sa.String(length=100), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("tests", sa.JSON(), nullable=False),
        sa.Column("signature", sa.String(length=32), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "job", "attempt"],
            ["attempts.run_id", "attempts.job", "attempts.n"],
            name=op.f("fk_causes_attempts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "job", "attempt", "position"),
    )
    with op.batch_alter_table("causes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_causes_category_started"), ["category", "started"], unique=False)
        batch_op.create_index(batch_op.f("ix_causes_signature_started"), ["signature", "started"], unique=False)

    op.create_table(
        "test_results",
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("test", sa.String(length=500), nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("started", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "job", "attempt"],
            ["attempts.run_id", "attempts.job", "attempts.n"],
            name=op.f("fk_test_results_attempts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "job", "attempt", "test"),
    )
    with op.batch_alter_table("test_results", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_test_results_outcome_started"), ["outcome", "started"], unique=False)
        batch_op.create_index(batch_op.f("ix_test_results_test_started"), ["test", "started"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("test_results", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_test_results_test_started"))
        batch_op.drop_index(batch_op.f("ix_test_results_outcome_started"))

    op.drop_table("test_results")
    with op.batch_alter_table("causes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_causes_signature_started"))
        batch_op.drop_index(batch_op.f("ix_causes_category_started"))

    op.drop_table("causes")
    with op.batch_alter_table("card_uses", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_card_uses_uuid_started"))

    op.drop_table("card_uses")
    op.drop_table("attempts")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_name_started"))

    op.drop_table("jobs")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_started"))
        batch_op.drop_index(batch_op.f("ix_runs_pr"))
        batch_op.drop_index(batch_op.f("ix_runs_commit"))

    op.drop_table("runs")
