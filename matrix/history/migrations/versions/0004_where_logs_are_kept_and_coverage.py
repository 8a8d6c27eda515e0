"""Where the logs of a run are kept, and what its tests covered."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("archive", sa.Text(), nullable=True))
    op.create_table(
        "coverage",
        sa.Column("run_id", sa.String(80), nullable=False),
        sa.Column("file", sa.String(500), nullable=False),
        sa.Column("statements", sa.Integer(), nullable=False),
        sa.Column("covered", sa.Integer(), nullable=False),
        sa.Column("changed", sa.Integer(), nullable=False),
        sa.Column("changed_covered", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "file"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_coverage_runs", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("coverage")
    # Not in batch mode: that replaces the table, and dropping the old one would take all that refers to it along.
    op.drop_column("runs", "archive")
