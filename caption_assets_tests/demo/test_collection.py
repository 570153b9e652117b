"""The sample collection is the same every time, and truth.jsonl says what must become of each of its records."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile

import pytest
from PIL import Image, ImageOps

from caption_assets.configfile import load_config
from caption_assets.core.columns import REASONS
from caption_assets.demo.collection import main, make_collection
from caption_assets.demo.shapes import ALL_SPECS


def digests(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")
    return folder, make_collection(folder)


def found_records(folder):
    """Record ids and bytes of everything that is a record, found without the code that wrote it."""
    for path in (folder / "sources" / "tars").iterdir():
        with tarfile.open(path) as tar:
            for member in tar:
                if not member.name.endswith((".json", ".txt")):
                    yield "shapes_tars", f"{path.name}#{member.name}", tar.extractfile(member).read()
    for number, line in enumerate((folder / "sources" / "catalog" / "catalog.jsonl").read_text().splitlines(), 1):
        try:
            data = (folder / "sources" / "catalog" / json.loads(line)["uri"]).read_bytes()
        except (ValueError, KeyError, FileNotFoundError):
            data = None
        yield "shapes_catalog", f"catalog.jsonl#{number}", data
    root = folder / "sources" / "folder"
    for path in root.rglob("*.*"):
        yield "shapes_folder", str(path.relative_to(root)), path.read_bytes()


def test_one_seed_gives_one_collection(collection, tmp_path):
    folder, truth = collection
    assert make_collection(tmp_path / "again") == truth
    assert digests(tmp_path / "again") == digests(folder)
    make_collection(tmp_path / "other", seed=1)
    assert digests(tmp_path / "other")["sources/tars/shapes-00000.tar"] != digests(folder)["sources/tars/shapes-00000.tar"]


def test_truth_names_every_record_once(collection):
    folder, truth = collection
    known = [(t.dataset, t.record_id) for t in truth]
    found = {(dataset, record_id): data for dataset, record_id, data in found_records(folder)}
    assert sorted(known) == sorted(found) and len(set(known)) == len(known)
    assert [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()] == [
        {"dataset": t.dataset, "record_id": t.record_id, "caption": t.caption, "reason": t.reason} for t in truth
    ]
    assert not list((folder / "sources").rglob("truth*"))


def test_truth_is_a_caption_where_the_picture_opens_and_a_reason_where_not(collection):
    folder, truth = collection
    expected = {(t.dataset, t.record_id): t for t in truth}
    for dataset, record_id, data in found_records(folder):
        t = expected[dataset, record_id]
        assert (t.caption is None) != (t.reason is None)
        assert t.reason is None or t.reason in REASONS
        try:
            picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data or b""))).convert("RGB")
            opens = True
        except OSError:
            opens = False
        assert opens == (t.caption is not None), (dataset, record_id)
        if opens:
            assert min(picture.size) >= 64 and max(picture.size) <= 320
    assert {t.reason for t in truth} == {
        None,
        "decode_error",
        "empty_file",
        "not_an_image",
        "bad_json_line",
        "missing_image",
        "missing_uri",
    }


def test_pictures_are_of_many_sizes_encodings_and_turned_by_exif(collection):
    folder, _ = collection
    pictures = [Image.open(io.BytesIO(data)) for _, record_id, data in found_records(folder) if data and data[:9] != b"<!DOCTYPE"]
    assert {p.format for p in pictures} == {"JPEG", "PNG", "WEBP"}
    assert len({p.size for p in pictures}) > 30
    assert any(p.getexif().get(0x0112) == 6 for p in pictures)


def test_captions_differ_until_all_192_were_used(collection):
    _, truth = collection
    captions = [t.caption for t in truth if t.caption]
    assert len(captions) - len(set(captions)) == 3  # one copy in each source


def test_sizes_are_free_and_faults_may_be_left_out(tmp_path):
    truth = make_collection(tmp_path, 7, tars=1, per_tar=3, catalog_rows=2, folder_images=1, faults=False)
    assert len(truth) == 6 and all(t.caption for t in truth)


def test_config_fits_the_collection(collection):
    folder, truth = collection
    config = load_config(folder / "caption_assets.yaml")
    assert {d.name for d in config.datasets} == {t.dataset for t in truth}
    assert config.store == str(folder / "store")
    for dataset in config.datasets:
        assert dataset.sampling.temperature == 0 and dataset.sampling.repetition_penalty == 1
        assert all(source.startswith(str(folder)) for source in dataset.source)


def test_a_complete_folder_is_left_as_it_is(tmp_path, capsys):
    assert main([str(tmp_path / "demo"), "--seed", "3"]) == 0
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert main([str(tmp_path / "demo")]) == 0
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    assert "there already" in capsys.readouterr().out


def test_an_interrupted_start_is_begun_again(tmp_path):
    first = make_collection(tmp_path, 3)
    (tmp_path / "caption_assets.yaml").unlink()
    (tmp_path / "sources" / "tars" / "shapes-00001.tar").unlink()
    assert main([str(tmp_path), "--seed", "3"]) == 0
    assert (tmp_path / "sources" / "tars" / "shapes-00001.tar").exists()
    assert make_collection(tmp_path / "x", 3) == first


def test_making_it_needs_neither_torch_nor_arrow():
    code = (
        "import sys, caption_assets.demo.collection;"
        "print([m for m in ('torch', 'transformers', 'vllm', 'pyarrow', 'numpy', 'dagster') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_specs_have_their_own_caption():
    assert len({s.caption for s in ALL_SPECS}) == len(ALL_SPECS) == 192
