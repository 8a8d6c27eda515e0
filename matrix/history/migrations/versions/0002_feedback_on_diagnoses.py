"""feedback on diagnoses."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feedback",
        sa.Column("id", sa.String(length=120), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("author", sa.String(length=100), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(length=80), nullable=True),
        sa.Column("job", sa.String(length=300), nullable=True),
        sa.Column("rule", sa.String(length=100), nullable=True),
        sa.Column("category", sa.String(length=60), nullable=True),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("right", sa.Boolean(), nullable=False),
        sa.Column("corrected_category", sa.String(length=60), nullable=True),
        sa.Column("corrected_line", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_category_at"), ["category", "at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_feedback_category_at"))

    op.drop_table("feedback")
