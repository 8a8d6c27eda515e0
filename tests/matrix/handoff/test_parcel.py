"""Hand-offs that travel between hosts."""

import json
import tarfile

import pytest

from matrix.handoff.parcel import pack, unpack


def tree(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "here" / "ckpt"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "x").write_bytes(b"\0\1")
    (folder / "model.bin").write_bytes(b"w" * 100_000)
    return folder


def test_a_folder_arrives_as_it_was_in_the_place_of_what_was_there(tmp_path, source):
    pack(source, tmp_path / "p.tar")
    there = tmp_path / "there" / "ckpt"
    there.mkdir(parents=True)
    (there / "old.bin").write_text("of another run")
    assert unpack(tmp_path / "p.tar", there) == []
    assert tree(there) == tree(source)


def test_a_glob_arrives_beside_what_it_does_not_match(tmp_path, source):
    pack(source.parent / "ck*" / "*.bin", tmp_path / "p.tar")
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("stays")
    assert unpack(tmp_path / "p.tar", there / "ck*" / "*.bin") == []
    assert sorted(tree(there)) == ["ckpt/model.bin", "mine"]


@pytest.mark.parametrize("cut", [50, 600, 60_000])
def test_what_arrives_half_replaces_nothing(tmp_path, source, cut):
    parcel = tmp_path / "p.tar"
    pack(source, parcel)
    parcel.write_bytes(parcel.read_bytes()[:-10_240][:-cut])
    there = tmp_path / "there" / "ckpt"
    there.mkdir(parents=True)
    (there / "old").write_text("stays")
    assert unpack(parcel, there)
    assert sorted(tree(there)) == ["old"]
    assert sorted(p.name for p in there.parent.iterdir()) == ["ckpt"]


def test_a_changed_byte_is_found(tmp_path, source):
    parcel = tmp_path / "p.tar"
    pack(source, parcel)
    raw = bytearray(parcel.read_bytes())
    raw[raw.index(b"wwww") + 50] ^= 1
    parcel.write_bytes(raw)
    [problem] = unpack(parcel, tmp_path / "there" / "ckpt")
    assert "SHA-256" in problem.what


def test_a_parcel_that_would_write_elsewhere_is_refused(tmp_path, source):
    parcel, evil = tmp_path / "p.tar", tmp_path / "evil"
    evil.write_text("x")
    listing = tmp_path / "list"
    listing.write_text(json.dumps({"files": {"../../escaped": {"bytes": 1, "sha256": "0"}}}))
    with tarfile.open(parcel, "w") as tar:
        tar.add(listing, "matrix-parcel.json")
        tar.add(evil, "../../escaped")
    assert unpack(parcel, tmp_path / "a" / "b" / "ckpt")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("data", [b"", b"no tar", b"\0" * 2048])
def test_what_is_no_parcel_is_said_to_be_none(tmp_path, data):
    (tmp_path / "p.tar").write_bytes(data)
    assert unpack(tmp_path / "p.tar", tmp_path / "x")
    assert unpack(tmp_path / "absent.tar", tmp_path / "x")[0].what == "is not there"
