"""The files of generated rows: named by content, never changed in place, and removed when no row names them."""

from nemo_gym.data.media_files import MediaFiles


def test_unused_files_of_its_own_are_removed(tmp_path):
    output = tmp_path / "rows.jsonl"
    earlier = MediaFiles(output, "images")
    old, kept = earlier.save(b"old", "clock", "png"), earlier.save(b"kept", "clock", "png")
    (tmp_path / "rows_images" / "notes.png").touch()
    later = MediaFiles(output, "images")
    assert later.save(b"kept", "clock", "png") == kept
    assert (tmp_path / old).read_bytes() == b"old"
    later.remove_unused()
    assert {path.name for path in (tmp_path / "rows_images").iterdir()} == {kept.split("/")[1], "notes.png"}


def test_incomplete_file_is_written_again(tmp_path):
    files = MediaFiles(tmp_path / "rows.jsonl", "audio")
    path = tmp_path / files.save(b"whole", "dtmf", "wav")
    path.write_bytes(b"wh")
    files.save(b"whole", "dtmf", "wav")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"whole"]


def test_nothing_is_removed_without_a_folder(tmp_path):
    MediaFiles(tmp_path / "rows.jsonl", "audio").remove_unused()
    assert list(tmp_path.iterdir()) == []
