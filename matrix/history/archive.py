"""Where run folders are kept for longer: a folder, or a bucket by URL (S3, GCS, Azure), as one packed file a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from matrix.errors import ToolError, UsageError
from matrix.masking import mask

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PACKED = ".tar.zst"


class ArchiveAwayError(ToolError):
    """The archive cannot be reached. Never the reason that a run fails: what was packed waits in the spool."""


class GoneError(ToolError):
    """What was asked for is not in the archive: removed by retention, or not sent yet."""


@dataclass(frozen=True, slots=True)
class Item:
    """A packed run in the archive. `at`: when it was put there, seconds since 1970; `size` in bytes."""

    name: str
    at: float
    size: int


class Archive(Protocol):
    """What can be asked of an archive; a name is a relative path.

    Raises:
        ArchiveAwayError: it cannot be reached, or refuses.

    """

    def put(self, name: str, path: Path) -> None:
        """Keep a file, whole or not at all, in place of an older one of this name."""

    def get(self, name: str, path: Path) -> None:
        """Copy what is kept to a file. Raises GoneError where nothing is."""

    def items(self) -> list[Item]:
        """List what is kept, the oldest first."""

    def delete(self, name: str) -> None:
        """Remove one; nothing happens where it is gone already."""


def open_archive(where: str) -> Archive:
    """Open an archive by the path of a folder or a URL: `s3://BUCKET/PREFIX?endpoint=http://HOST:PORT`.

    Keys, region and endpoint come from the variables that AWS's own tools read; the query of the URL may name
    `endpoint` and `region`. No key is taken from the URL: URLs are printed.

    Raises:
        UsageError: the URL cannot be used.

    """
    return _Bucket(where) if "://" in where else _Folder(Path(where))


class _Folder:
    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, path: Path) -> None:
        target = self.root / name
        tmp = target.with_name(f".{target.name}.tmp")
        with self._said():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tmp)
            tmp.replace(target)

    def get(self, name: str, path: Path) -> None:
        with self._said():
            shutil.copyfile(self.root / name, path)

    def items(self) -> list[Item]:
        with self._said():
            found = [(p, p.stat()) for p in self.root.rglob(f"*{PACKED}")]
        return sorted((Item(str(p.relative_to(self.root)), s.st_mtime, s.st_size) for p, s in found), key=_age)

    def delete(self, name: str) -> None:
        with self._said():
            (self.root / name).unlink(missing_ok=True)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as e:
            raise GoneError(f"archive: nothing is kept as {e.filename}") from None
        except OSError as e:
            raise ArchiveAwayError(f"archive: {self.root}: {(e.strerror or str(e)).lower()}") from None


class _Bucket:
    def __init__(self, where: str) -> None:
        self.shown = mask(where)
        try:
            import obstore  # noqa: PLC0415 -- an optional extra
        except ModuleNotFoundError:
            raise UsageError(
                f"archive: {self.shown} needs a package that is not installed", "install the extra `archive`"
            ) from None
        self.api = obstore
        self.store = _connect(where, self.shown)

    def put(self, name: str, path: Path) -> None:
        try:
            with self._said(name):
                self.api.put(self.store, name, path)
        except GoneError:  # what is not found then is the bucket
            raise ArchiveAwayError(f"archive: {self.shown}: no such bucket") from None

    def get(self, name: str, path: Path) -> None:
        with self._said(name), path.open("wb") as f:
            for chunk in self.api.get(self.store, name).stream():
                f.write(chunk)

    def items(self) -> list[Item]:
        with self._said(""):
            found = [m for batch in self.api.list(self.store) for m in batch if m["path"].endswith(PACKED)]
        return sorted((Item(m["path"], m["last_modified"].timestamp(), m["size"]) for m in found), key=_age)

    def delete(self, name: str) -> None:
        try:
            with self._said(name):
                self.api.delete(self.store, name)
        except GoneError:
            return

    @contextmanager
    def _said(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError:
            raise GoneError(f"archive: {self.shown} holds no {name}") from None
        except (BaseError, OSError) as e:
            reason = mask(" ".join(str(e).split("\n\n", 1)[0].split()))[:300]
            raise ArchiveAwayError(f"archive: {self.shown}: {reason}") from None


def _connect(where: str, shown: str) -> ObjectStore:
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import from_url  # noqa: PLC0415

    parts = urlsplit(where)
    query = parse_qs(parts.query)
    unknown = sorted(set(query) - {"endpoint", "region"})
    if unknown or "@" in parts.netloc:
        wrong = f"it may not hold {unknown[0]!r}" if unknown else "it may not hold a key"
        raise UsageError(
            f"archive: cannot use {shown}: {wrong}",
            "write s3://BUCKET/PREFIX?endpoint=URL&region=NAME, and the keys into AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY",
        )
    options: dict[str, Any] = {name: values[0] for name, values in query.items()}
    if parts.scheme in ("s3", "s3a") and "region" not in options:
        options |= _region()
    try:
        return from_url(
            parts._replace(query="").geturl(),
            client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "120s"},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
            **options,
        )
    except (BaseError, ValueError, TypeError) as e:
        reason = mask(" ".join(str(e).split("\n\n", 1)[0].split()))[:300]
        raise UsageError(f"archive: cannot use {shown}: {reason}", "write s3://BUCKET/PREFIX or a folder") from None


def _region() -> dict[str, str]:
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {"region": named or "us-east-1"}  # servers of one's own take any; the signature needs one


def _age(item: Item) -> tuple[float, str]:
    return item.at, item.name
