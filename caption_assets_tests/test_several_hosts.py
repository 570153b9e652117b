"""People on several hosts work through one instance in PostgreSQL and one store."""

import contextlib
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass

import dagster as dg
import pytest

from caption_assets.assets.plan import register_shards
from caption_assets.configfile import load_config
from caption_assets.core.loop.leases import Lease, read_lease
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import load_plan
from caption_assets.core.planning import make_plan
from caption_assets.liveness import clear_dead_runs
from caption_assets.partitions import GPU_POOL, SHARD_ASSETS, Dataset
from caption_assets.presence import HOST_TAG, USER_TAG
from caption_assets_tests.hosts import Host, ended, two_hosts
from caption_assets_tests.project import COLOURS, Project, make_project, wait_until
from caption_assets_tests.servers import running_postgres
from caption_assets_tests.stubs.openai_server import StubServer

PATIENCE_S = 240
STARTED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])


@dataclass
class Team:
    """Two hosts, the project that both work on, its endpoint, and the instance as this test sees it."""

    alpha: Host
    beta: Host
    project: Project
    stub: StubServer
    instance: dg.DagsterInstance

    @property
    def dataset(self) -> Dataset:
        config = load_config(self.project.folder / "caption_assets.yaml")
        return Dataset(config, config.datasets[0])

    def slots(self, count: int) -> None:
        """At most so many steps ask the model at a time, whoever started them."""
        self.instance.event_log_storage.set_concurrency_slots(GPU_POOL, count)

    def plan(self) -> None:
        """As `caption-assets plan` does it."""
        make_plan(ObjectStore(), self.dataset.layout, self.dataset.spec)
        register_shards(self.instance, self.dataset, load_plan(ObjectStore(), self.dataset.layout))

    def lease(self, shard: str) -> Lease | None:
        return read_lease(ObjectStore(), self.dataset.layout.lease(shard))

    def at_work(self) -> int:
        """Shards that a run holds; looked at now and then, since every look is a new connection."""
        time.sleep(0.5)
        return sum("dagster/partition" in run.tags for run in self.instance.get_runs(STARTED))

    def runs(self) -> list[dg.DagsterRun]:
        return self.instance.get_runs(dg.RunsFilter(job_name="photos_caption_shard"))


@contextlib.contextmanager
def team(folder, shards: int, max_connections: int = 200):
    """Both hosts are prepared, and no step may ask the model yet."""
    with contextlib.ExitStack() as stack:
        alpha, beta = stack.enter_context(two_hosts())
        server = stack.enter_context(running_postgres(alpha.hub, max_connections))
        # One request at a time per shard: more of them in flight than slots would be more shards at work than slots.
        stub = stack.enter_context(StubServer(host=alpha.hub, latency=(0.05, 0.1)))
        project = make_project(folder, stub.url, pictures=shards * 4, shard_size=4)
        project.config["engine"]["concurrency"] = 1
        project.write()
        database = {"DAGSTER_POSTGRES_URL": server.make_database()}
        for host in (alpha, beta):
            host.settings.update(database)
        preparing = [host.start(project, "init", "--postgres") for host in (alpha, beta)]
        for process in preparing:
            ended(process, 0)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("DAGSTER_POSTGRES_URL", database["DAGSTER_POSTGRES_URL"])
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(alpha.home(project))))
        here = Team(alpha, beta, project, stub, instance)
        here.slots(0)
        yield here


def _everything_is_right(here: Team, shards: int) -> None:
    """Every shard captioned, each asked once; nothing failed, nothing locked."""
    rows = here.project.rows("merged")
    assert len(rows) == shards * 4 and not here.project.rows("failed")
    assert all(list(COLOURS)[int(row["record_id"][:4]) % 4] in row["caption"] for row in rows.values())
    assert here.stub.counts() == {"grid": shards}
    runs = Counter(run.tags["dagster/partition"] for run in here.runs())
    assert len(runs) == shards and set(runs.values()) == {1}, runs
    assert {run.status for run in here.runs()} == {dg.DagsterRunStatus.SUCCESS}
    assert {run.tags[HOST_TAG] for run in here.runs()} == {"alpha", "beta"}


def test_two_people_take_overlapping_ranges(tmp_path):
    """Four runs at once from two hosts. Who comes second is told who is at work, and nothing is asked twice."""
    with team(tmp_path, shards=4) as here:
        anna = here.alpha.start(here.project, "run", "--shards", "shard-00000..shard-00002", user="anna")
        wait_until(lambda: here.at_work() == 2, PATIENCE_S)  # with their leases, waiting for a slot
        said = here.beta.command(here.project, "run", "--shards", "shard-00000,shard-00001", user="ben", code=3)
        for shard in ("shard-00000", "shard-00001"):
            assert f"photos/{shard}: left to anna on alpha (run {here.lease(shard).run_id}, process " in said
        ben = here.beta.start(here.project, "run", "--shards", "shard-00002..shard-00003", user="ben")
        wait_until(lambda: here.at_work() == 4, PATIENCE_S)
        watched = here.beta.command(here.project, "status", user="ben")
        assert "anna@alpha" in watched and "ben@beta" in watched
        here.slots(2)
        outputs = [ended(anna, 0, 3), ended(ben, 0, 3)]
        assert not [text for text in outputs if "failed (" in text or "locked" in text or "Traceback" in text], outputs
        _everything_is_right(here, 4)
        assert here.stub.most_in_flight <= 2
        assert {run.tags[USER_TAG] for run in here.runs()} == {"anna", "ben"}


def test_a_run_that_died_on_another_host_is_cleared_when_its_lease_has_run_out(tmp_path):
    """A run that plain Dagster started; nobody else takes it for dead while it waits for its turn."""
    with team(tmp_path, shards=1) as here:
        here.plan()
        command = (sys.executable, "-m", "dagster", "asset", "materialize", "-m", "caption_assets.definitions", "--select")
        steps = ",".join(f"photos/{asset}" for asset in SHARD_ASSETS)
        process = here.alpha.popen(here.project, *command, steps, "--partition", "shard-00000", user="anna")
        wait_until(lambda: here.at_work() and here.lease("shard-00000"), PATIENCE_S)
        assert here.lease("shard-00000").host == "alpha"
        objects, dead = ObjectStore(), here.lease("shard-00000").run_id
        assert clear_dead_runs(here.instance, [here.dataset], objects) == []
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert clear_dead_runs(here.instance, [here.dataset], objects) == [], "its lease has not run out"
        _shorten(here, "shard-00000")
        cleared: list[str] = []
        wait_until(lambda: cleared.extend(clear_dead_runs(here.instance, [here.dataset], objects)) or cleared, PATIENCE_S)
        assert cleared == [dead] and here.instance.get_run_by_id(dead).status == dg.DagsterRunStatus.FAILURE
        assert not here.instance.event_log_storage.get_concurrency_info(GPU_POOL).pending_steps


def _shorten(here: Team, shard: str) -> None:
    """As if the lease's time to live were two seconds."""
    uri = here.dataset.layout.lease(shard)
    ObjectStore().put(uri, read_lease(ObjectStore(), uri).content.replace(b'"ttl_s": 90.0', b'"ttl_s": 2.0'))


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_sixteen_runs_at_once_from_two_hosts(tmp_path):
    """Eight commands, four on each host, all over the same twenty shards; three slots."""
    with team(tmp_path, shards=20) as here:
        commands = [host.start(here.project, "run", user=f"user{n}") for n in range(4) for host in (here.alpha, here.beta)]
        wait_until(lambda: here.at_work() == 16, 900)
        here.slots(3)
        most = 0
        while any(command.poll() is None for command in commands):
            claimed = here.instance.event_log_storage.get_concurrency_info(GPU_POOL).claimed_slots
            most = max(most, len(claimed))
            time.sleep(0.2)
        outputs = [ended(command, 0, 3) for command in commands]
        assert not [text for text in outputs if "failed (" in text or "locked" in text or "Traceback" in text], outputs
        _everything_is_right(here, 20)
        assert most == 3 and here.stub.most_in_flight <= 3
