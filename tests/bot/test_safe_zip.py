import io
import stat
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.safe_zip import MAX_MEMBERS, HostileArchiveError, SafeZip


def archive(*members, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, data, *mode in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            info.external_attr = (mode[0] if mode else stat.S_IFREG | 0o644) << 16
            z.writestr(info, data)
    return out.getvalue()


def test_an_ordinary_archive_is_read():
    z = SafeZip.open(archive(("logs/a.log", b"one\n"), ("run.json", b"{}")), 1000)
    assert z.names == ("logs/a.log", "run.json")
    assert z.read("logs/a.log", 3) == b"one"


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "..\\x", "\\\\host\\x", "C:/x", "a/..", "..", "//x", "a/b/../c"]
)
def test_zip_slip_is_refused(name):
    with pytest.raises(HostileArchiveError, match="leads out"):
        SafeZip.open(archive((name, b"x")), 1000)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK])
def test_links_and_special_files_are_refused(kind):
    with pytest.raises(HostileArchiveError, match="link or a special"):
        SafeZip.open(archive(("run.json", b"/etc/passwd", kind | 0o777)), 1000)


def test_a_bomb_is_refused_before_it_is_unpacked():
    with pytest.raises(HostileArchiveError, match="unpacks to"):
        SafeZip.open(archive(("run.json", b"\0" * (20 << 20))), 1 << 30)
    with pytest.raises(HostileArchiveError, match="at most 1000"):
        SafeZip.open(archive(("a", b"x" * 600), ("b", b"x" * 600)), 1000)


def test_a_member_that_lies_about_its_size_is_refused():
    data = archive(("run.json", bytes(range(256)) * 64))
    small = data.replace(struct.pack("<I", 256 * 64), struct.pack("<I", 10))
    z = SafeZip.open(small, 1000)
    with pytest.raises(HostileArchiveError):
        z.read("run.json", 1 << 20)


def test_too_many_members_two_of_one_name_encryption_and_rubbish_are_refused():
    with pytest.raises(HostileArchiveError, match="members"):
        SafeZip.open(archive(*((f"f{i}", b"") for i in range(MAX_MEMBERS + 1))), 1000)
    with pytest.warns(UserWarning, match="Duplicate"):
        double = archive(("a", b"1"), ("a", b"2"))
    with pytest.raises(HostileArchiveError, match="same name"):
        SafeZip.open(double, 1000)
    locked = bytearray(archive(("a", b"1")))
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(HostileArchiveError, match="encrypted"):
        SafeZip.open(bytes(locked), 1000)
    for rubbish in (b"", b"PK", b"x" * 100, archive(("a", b"1"))[:-5]):
        with pytest.raises(HostileArchiveError, match="not a readable"):
            SafeZip.open(rubbish, 1000)


@given(st.binary(max_size=60), st.integers(0, 400))
def test_damaged_archives_never_raise_anything_else(junk, at):
    data = bytearray(archive(("run.json", b"{}" * 50), ("logs/a.log", b"line\n" * 20)))
    data[at : at + len(junk)] = junk
    try:
        z = SafeZip.open(bytes(data), 10_000)
        for name in z.names:
            assert len(z.read(name, 100)) <= 100
    except HostileArchiveError:
        pass
