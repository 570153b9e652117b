"""Each probe by itself: what it finds, that it leaves nothing behind, that it waits for nobody, and that it tells no secret."""

import json
import tarfile
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caption_assets.config import Config, EngineConfig, S3Config
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.diagnosis import disk, engines, glimpse, machine, sources, stores
from caption_assets.diagnosis.findings import Finding, Probe, run_probes
from caption_assets_tests.project import picture
from caption_assets_tests.servers import free_port
from caption_assets_tests.stubs.openai_server import StubServer

COUNT = 300


def config(folder, source, **changes) -> Config:
    spec = {"name": "photos", "source": [str(source)], "prompts": [{"text": "Describe."}], "grid": {"cell_size": 64, "gap": 4}}
    return Config(store=str(folder / "store"), datasets=[{**spec, **changes}])


def pictures(folder) -> list:
    for number in range(8):
        picture(folder / f"{number}.png", number)
    return sorted(folder.iterdir())


def as_folder(folder):
    pictures(folder / "set")
    return folder / "set", 8


def as_tar(folder):
    files = pictures(folder / "pictures")
    (folder / "set").mkdir()
    with tarfile.open(folder / "set" / "a.tar", "w") as tar:
        for number in range(COUNT):
            tar.add(files[number % 8], f"{number:04d}.png")
    return folder / "set", COUNT


def as_jsonl(folder):
    files = pictures(folder / "pictures")
    lines = [json.dumps({"id": n, "uri": f"pictures/{files[n % 8].name}"}) for n in range(COUNT)]
    (folder / "list.jsonl").write_text("\n".join(lines))
    return folder / "list.jsonl", COUNT


def as_parquet(folder):
    files = pictures(folder / "pictures")
    table = pa.table({"image": [files[n % 8].read_bytes() for n in range(COUNT)], "n": range(COUNT)})
    (folder / "set").mkdir()
    pq.write_table(table, folder / "set" / "a.parquet", row_group_size=50)
    return folder / "set", COUNT


@pytest.mark.parametrize("make", [as_folder, as_tar, as_jsonl, as_parquet])
def test_a_source_of_each_kind_is_counted_and_its_first_pictures_are_read(make, tmp_path):
    source, count = make(tmp_path)
    settings, seen = config(tmp_path, source), {}
    found = list(sources.source(settings, settings.datasets[0], seen))
    assert [finding.state for finding in found] == ["ok", "ok"], found
    assert seen["photos"].all_records == pytest.approx(count, rel=0.02)
    assert "8 of the first 8 pictures" in found[1].said
    assert seen["photos"].grid_bytes


def test_a_large_tar_is_looked_at_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(glimpse, "BYTES", 40_000)
    source, count = as_tar(tmp_path)
    settings, seen = config(tmp_path, source), {}
    assert [f.state for f in sources.source(settings, settings.datasets[0], seen)] == ["ok", "ok"]
    assert seen["photos"].records < count / 4
    assert seen["photos"].all_records == pytest.approx(count, rel=0.1)


def test_a_source_of_many_files_is_listed_only_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(glimpse, "OBJECTS", 5)
    source, _ = as_folder(tmp_path)
    settings, seen = config(tmp_path, source), {}
    assert "more than 5 files" in next(iter(sources.source(settings, settings.datasets[0], seen))).said
    assert seen["photos"].all_records is None


def test_pictures_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "list.jsonl").write_text('{"uri": "gone.png"}\n{"uri": "http://127.0.0.1/x.png"}\n')
    settings = config(tmp_path, tmp_path / "list.jsonl")
    found = list(sources.source(settings, settings.datasets[0], {}))
    assert found[1].state == "problem" and "gone.png" in found[1].said and "images.local_roots" in found[1].remedy


def test_a_store_in_s3_says_whether_it_knows_conditional_puts_and_keeps_nothing(s3_server, moto_server, tmp_path):
    for server, state in ((s3_server, "warning"), (moto_server, "ok")):
        bucket = server.make_bucket()
        settings = config(tmp_path, tmp_path).model_copy(update={"store": f"s3://{bucket}/x", "s3": server.config()})
        (found,) = stores.store(settings)
        assert found.state == state and "conditional puts" in found.said
        assert not server.client().list_objects_v2(Bucket=bucket).get("Contents")
        (found,) = sources.credentials_of(settings, bucket)
        assert found.state == "ok" and "env" in found.said
        (found,) = stores.store(settings.model_copy(update={"store": "s3://no-such-bucket/x"}))
        assert found.state == "problem" and "no-such-bucket" in found.said


def test_credentials_that_are_missing_are_told_before_any_request(s3_keys, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    settings = config(tmp_path, "s3://cases/set/")
    settings = settings.model_copy(update={"s3": S3Config(endpoint_url=f"http://127.0.0.1:{free_port()}", region="xx-test-1")})
    assert sources.bucket_uses(settings) == {"cases": ["photos"]}
    (found,) = sources.credentials_of(settings, "cases")
    assert found.state == "problem" and "AWS_ACCESS_KEY_ID" in found.remedy and "s3.profile" in found.remedy
    found, *_ = sources.source(settings, settings.datasets[0], {})
    assert found.state == "problem" and "no credentials were found" in found.said


def test_a_store_on_disk_is_not_made_for_the_probe(tmp_path):
    (found,) = stores.store(config(tmp_path, tmp_path))
    assert found.state == "ok" and list(tmp_path.iterdir()) == []
    (tmp_path / "store").write_text("")
    (found,) = stores.store(config(tmp_path, tmp_path))
    assert found.state == "problem" and "is a file" in found.said


def endpoint(*urls: str, **changes) -> list[Finding]:
    engine = EngineConfig(kind="openai", model="stub", endpoints=list(urls), **changes)
    spec = Config(datasets=[{"name": "photos", "source": "/x", "prompts": [{"text": "Describe."}]}]).datasets[0]
    return list(engines.endpoints(engine, [spec]))


def test_each_endpoint_is_asked_once(monkeypatch):
    monkeypatch.setattr(engines, "REPLY_S", 1)
    with StubServer() as good, StubServer(model="other") as other, StubServer(behaviour="hang") as hanging:
        gone = f"http://127.0.0.1:{free_port()}/v1"
        found = endpoint(good.url, other.url, hanging.url, gone)
        assert [(finding.of, finding.state) for finding in found] == [
            (good.url, "ok"),
            (other.url, "problem"),
            (hanging.url, "problem"),
            (gone, "problem"),
        ]
        assert "has no model 'stub'; it has: other" in found[1].said and "no answer" in found[2].said
        assert "start the server there" in found[3].remedy
        assert [entry.canary for entry in good.log] == [True]


def test_a_key_that_is_wrong_or_missing_is_never_shown(monkeypatch):
    monkeypatch.delenv("MY_OWN_NAME", raising=False)
    with StubServer(api_key="right-key") as stub:
        assert "export MY_OWN_NAME" in endpoint(stub.url, api_key_env="MY_OWN_NAME")[0].remedy
        monkeypatch.setenv("MY_OWN_NAME", "wrong-key-123")
        (found,) = endpoint(stub.url, api_key_env="MY_OWN_NAME")
        assert found.state == "problem" and "MY_OWN_NAME" in found.said and "wrong-key-123" not in found.said
        monkeypatch.setenv("MY_OWN_NAME", "right-key")
        assert endpoint(stub.url, api_key_env="MY_OWN_NAME")[0].state == "ok"


def test_a_model_folder_must_be_complete(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTION_ASSETS_STATE", str(tmp_path / "state"))
    (tmp_path / "model").mkdir()
    found = {f.check: f for f in engines.vllm(EngineConfig(model=str(tmp_path / "model")))}
    assert found["model"].state == "problem" and "has no config.json and no weights" in found["model"].said
    found = {f.check: f for f in engines.vllm(EngineConfig(model="demo"))}
    assert found["model"].state == "ok"
    assert not (tmp_path / "state").exists()


def test_gpus_must_suffice_for_the_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    config = EngineConfig(model="demo", replicas=2, server_args={"tensor_parallel_size": 2})
    found = {finding.check: finding for finding in engines.vllm(config)}
    assert found["gpu"].state == "problem" and "want 4, this machine shows 2" in found["gpu"].said


def test_a_port_in_use_is_told_with_the_way_out():
    with StubServer() as stub:
        (found,) = machine.port(stub.port)
        assert found.state == "warning" and f"-p {stub.port + 1}" in found.remedy
    assert [f.state for f in machine.port(free_port())] == ["ok"]


def test_a_disk_that_is_too_small_is_told_before_the_run(tmp_path, monkeypatch):
    source, _ = as_folder(tmp_path)
    settings, seen = config(tmp_path, source), {}
    list(sources.source(settings, settings.datasets[0], seen))
    found = {finding.check: finding for finding in disk.disks(settings, seen)}
    assert found["store disk"].state == "ok" and "8 records" in found["store disk"].said
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage)
    found = {finding.check: finding for finding in disk.disks(settings, seen)}
    assert found["store disk"].state == "problem" and "grid.keep" in found["store disk"].remedy
    assert found["scratch disk"].state == "problem" and "CAPTION_ASSETS_SCRATCH" in found["scratch disk"].remedy


def test_an_unplanned_dataset_of_unknown_size_is_said_to_be_unknown(tmp_path):
    settings = config(tmp_path, tmp_path)
    need = disk.need(ObjectStore(), Layout(settings.store, "photos"), settings.datasets[0], None)
    assert need.records is None


def test_a_probe_that_hangs_or_breaks_costs_only_itself():
    release = threading.Event()

    def hangs():
        yield Finding("ok", "first", "x", "came")
        release.wait()

    def breaks():
        raise ValueError("no luck")
        yield

    probes = [Probe("hangs", "x", hangs, "wait"), Probe("breaks", "y", breaks, "mend it")]
    found, stuck = run_probes(probes, 0.5)
    release.set()
    assert stuck
    assert [(f.state, f.check) for f in found] == [("ok", "first"), ("problem", "hangs"), ("problem", "breaks")]
    assert found[1].remedy == "wait" and "no luck" in found[2].said


def test_no_secret_is_told(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecretvalue")
    monkeypatch.setenv("MY_OWN_NAME", "anotherone")
    said = "https://bob:pw@host/x?X-Amz-Signature=abc verysecretvalue Bearer token123 anotherone"

    def leaks():
        yield Finding("problem", "leak", "http://bob:pw@host", said)

    ((found,), _) = run_probes([Probe("leak", "x", leaks, "")], 5, ["MY_OWN_NAME"])
    for secret in ("pw@", "abc", "verysecretvalue", "token123", "anotherone"):
        assert secret not in found.said + found.of, found
    assert "host/x" in found.said


def test_optional_libraries_are_asked_for_where_the_config_or_a_file_wants_them(tmp_path, monkeypatch):
    source, _ = as_folder(tmp_path)
    (source / "x.heic").write_bytes(b"?")
    settings = config(tmp_path, source, filters={"language": "en"}, exports=["lance"], engine={"model": "demo"})
    seen = {}
    list(sources.source(settings, settings.datasets[0], seen))
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    found = list(machine.libraries(settings, seen))
    assert {finding.of for finding in found} == {"pillow_heif", "py3langid", "lance"}
    assert all(finding.state == "problem" and "pip install" in finding.remedy for finding in found)
