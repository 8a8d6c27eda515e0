"""Alembic's entry: runs migrations on the connection that the store hands over."""

from alembic import context

from matrix.history.schema import metadata

connection = context.config.attributes["connection"]
# Batch mode: SQLite alters a table by copying it.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
