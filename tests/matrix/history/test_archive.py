import io
import json
import logging
import tarfile
import time

import pytest
import zstandard
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from matrix.commands.history import command
from matrix.errors import UsageError
from matrix.history.archive import ArchiveAwayError, GoneError, Item, open_archive
from matrix.history.keeping import expired, fetch, keep, name_of
from matrix.history.packing import pack, unpack
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.records import save
from tests.matrix.history.made import attempt, run

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.fixture(scope="module")
def s3():
    """A server that speaks S3 over HTTP, with an empty bucket; yields its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def where(request, tmp_path, monkeypatch):
    """An archive of each kind."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret-value")
    if request.param == "folder":
        return str(tmp_path / "archive")
    endpoint = request.getfixturevalue("s3")
    import boto3

    bucket = f"b{time.time_ns()}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/ci/logs?endpoint={endpoint}"


def made_folder(tmp_path, name="r1", text="hello\n"):
    record = run(name, 0, [attempt(0, failed="s1")])
    folder = tmp_path / "runs" / name
    (folder / "logs/unit/1").mkdir(parents=True)
    (folder / "logs/unit/1.log").write_text(text)
    (folder / "logs/unit/1/junit.xml").write_text("<testsuite/>")
    save(record, folder / "run.json")
    return record, folder


def test_a_run_is_kept_and_comes_back_with_its_logs(where, tmp_path):
    record, folder = made_folder(tmp_path)
    assert keep(record, folder, tmp_path / "spool", {"MATRIX_ARCHIVE": where}) is None
    archive = open_archive(where)
    (item,) = archive.items()
    assert item.name == name_of(record) == "o/r/2026-12/r1.tar.zst"
    fetch(archive, item.name, tmp_path / "back")
    assert (tmp_path / "back/logs/unit/1.log").read_text() == "hello\n"
    assert json.loads((tmp_path / "back/run.json").read_text())["id"] == "r1"
    assert not list((tmp_path / "spool").rglob("*.zst"))
    archive.delete(item.name)
    archive.delete(item.name)
    with pytest.raises(GoneError):
        archive.get(item.name, tmp_path / "x")


def test_credentials_are_masked_before_anything_leaves_the_host(where, tmp_path):
    private = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg\n" * 5 + "-----END PRIVATE KEY-----\n"
    filler = "x" * 200_000 + "\n"  # so that the chunks in which a log is read end within the key
    text = f"token {TOKEN}\n{filler * 5}{filler[:48_000]}\n{private}my own: swordfish-12\nend\n"
    record, folder = made_folder(tmp_path, text=text)
    env = {"MATRIX_ARCHIVE": where, "DB_PASSWORD": "swordfish-12", "HOME": "/root/somewhere"}
    assert keep(record, folder, tmp_path / "spool", env) is None
    fetch(open_archive(where), name_of(record), tmp_path / "back")
    log = (tmp_path / "back/logs/unit/1.log").read_text()
    assert log.endswith("my own: ***\nend\n")
    for secret in (TOKEN, "MIIEvQ", "swordfish"):
        assert secret not in log
    assert TOKEN in (folder / "logs/unit/1.log").read_text()


def test_an_archive_that_is_away_costs_a_warning_and_the_run_is_sent_later(where, tmp_path):
    spool = tmp_path / "spool"
    record, folder = made_folder(tmp_path)
    warning = keep(record, folder, spool, {"MATRIX_ARCHIVE": "s3://b/x?endpoint=http://127.0.0.1:1"})
    assert "sent with the next run" in warning
    assert "test-secret-value" not in warning
    later, folder = made_folder(tmp_path, "r2")
    assert keep(later, folder, spool, {"MATRIX_ARCHIVE": where}) is None
    assert {i.name for i in open_archive(where).items()} == {name_of(record), name_of(later)}


def test_a_bucket_that_is_not_there_is_away(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    record, folder = made_folder(tmp_path)
    assert "s3://none" in keep(record, folder, tmp_path / "spool", {"MATRIX_ARCHIVE": f"s3://none/?endpoint={s3}"})
    with pytest.raises((ArchiveAwayError, GoneError)):
        open_archive(f"s3://none/?endpoint={s3}").items()


@pytest.mark.parametrize("bad", ["s3://b?endpont=x", "ftp://x/y", "s3://key:secretvalue@b/x", "s3://"])
def test_a_url_that_cannot_be_used_is_the_users_mistake_and_shows_no_key(bad):
    with pytest.raises(UsageError, match="archive: cannot use") as e:
        open_archive(bad)
    assert "secretvalue" not in e.value.message


def test_retention_removes_the_old_and_then_the_oldest_until_it_fits():
    items = [Item(f"r{i}", at=i * 10.0, size=100) for i in range(10)]
    assert [i.name for i in expired(items, now=100, max_age=75, max_size=None)] == ["r0", "r1", "r2"]
    assert [i.name for i in expired(items, now=100, max_age=75, max_size=550)] == ["r0", "r1", "r2", "r3", "r4"]
    assert expired(items, now=100, max_age=None, max_size=None) == []


def matrix_history(*args):
    done = CliRunner().invoke(command, args)
    return done.output + (getattr(done.exception, "message", "") if done.exception else "")


def test_a_result_outlives_its_log_and_says_so(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    db = f"sqlite:///{tmp_path}/h.sqlite"
    record, folder = made_folder(tmp_path)
    keep(record, folder, tmp_path / "spool", {"MATRIX_ARCHIVE": where})
    rows = rows_of(record)
    rows.run["archive"] = name_of(record)
    store = open_store(db)
    store.write(rows)
    store.close()
    common = ("--db", db, "--archive", where)
    assert "would remove o/r" in matrix_history("retain", "--older", "none", "--size", "1", "--dry-run", *common)
    assert "r1" in matrix_history("fetch", "r1", *common)
    assert (tmp_path / ".matrix/runs/r1/logs/unit/1.log").is_file()
    assert "0 runs kept" in matrix_history("retain", "--older", "none", "--size", "1", *common)
    assert "its logs are gone" in matrix_history("fetch", "r1", *common)
    assert "no run 'r9'" in matrix_history("fetch", "r9", *common)


def test_what_is_no_packed_run_is_refused(tmp_path):
    bad = tmp_path / "x.tar.zst"
    bad.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError):
        unpack(bad, tmp_path / "out")


def test_a_packed_run_cannot_write_outside_of_its_folder(tmp_path):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info = tarfile.TarInfo("../evil")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "x.tar.zst").write_bytes(zstandard.compress(raw.getvalue()))
    with pytest.raises(UsageError):
        unpack(tmp_path / "x.tar.zst", tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_a_link_in_a_run_is_not_followed(tmp_path):
    _, folder = made_folder(tmp_path)
    (folder / "logs/unit/1/passwd").symlink_to("/etc/passwd")
    pack(folder, tmp_path / "x.tar.zst", {})
    unpack(tmp_path / "x.tar.zst", tmp_path / "out")
    assert not (tmp_path / "out/logs/unit/1/passwd").exists()
