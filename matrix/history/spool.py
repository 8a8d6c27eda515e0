"""What could not be stored waits in files and is sent later: a database that is away never fails a run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from matrix.errors import ToolError
from matrix.history.rows import Rows
from matrix.history.store import Store, StoreAwayError, open_store


def record(url: str, rows: Rows, spool: Path) -> str | None:
    """Store a run and whatever waits in the spool; keep it in the spool where the database does not answer.

    Returns a warning for the user, or None when everything was stored.
    """
    try:
        put(rows, spool)
    except OSError as e:  # full, or not ours to write: the database may well take it
        return _without_spool(url, rows, f"{spool}: {(e.strerror or str(e)).lower()}")
    try:
        store = open_store(url)
    except StoreAwayError as e:
        return _waits(e, spool)
    try:
        refused = send(store, spool)
    except StoreAwayError as e:
        return _waits(e, spool)
    finally:
        store.close()
    return f"history: {len(refused)} results were refused and stay in {spool}: {refused[0]}" if refused else None


def _waits(e: StoreAwayError, spool: Path) -> str:
    broken = f" ({e.advice})" if e.broken else ""
    return f"{e.message}{broken}; the result waits in {spool} and is sent with the next run"


def _without_spool(url: str, rows: Rows, why: str) -> str | None:
    """Store a run that cannot wait; only when neither takes it is it lost, and its folder can be imported later."""
    try:
        store = open_store(url)
        try:
            store.write(rows)
        finally:
            store.close()
    except ToolError as e:
        return f"{e.message}, and nothing can wait in {why}; later: matrix history import .matrix/runs/{rows.run['id']}"
    return None


def put(rows: Rows, spool: Path) -> None:
    """Write one run into the spool, whole or not at all."""
    spool.mkdir(parents=True, exist_ok=True)
    target = spool / f"{rows.run['id']}.json"
    tmp = spool / f".{target.name}.{os.getpid()}"
    try:
        with tmp.open("w", encoding="utf-8") as f:
            json.dump(asdict(rows), f)
            f.flush()
            os.fsync(f.fileno())
        tmp.replace(target)
    except OSError:
        tmp.unlink(missing_ok=True)  # half of it would only fill the disk further
        raise


def send(store: Store, spool: Path) -> list[str]:
    """Store every waiting run, oldest first; return why some were refused (they stay, marked `.refused`).

    Raises:
        StoreAwayError: the database does not answer; what was not stored stays in the spool.

    """
    refused: list[str] = []
    for path in sorted(spool.glob("*.json"), key=_written):
        try:
            rows = Rows(**json.loads(path.read_text(encoding="utf-8")))
            store.write(rows)
        except FileNotFoundError:
            continue  # another runner sent it meanwhile
        except StoreAwayError:
            raise
        except (ToolError, ValueError, TypeError, KeyError) as e:
            refused.append(f"{path.name}: {e}")
            path.replace(path.with_suffix(".refused"))
            continue
        path.unlink(missing_ok=True)
    return refused


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another runner sent it meanwhile
        return 0.0
