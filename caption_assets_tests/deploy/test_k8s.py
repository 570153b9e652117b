"""The Kubernetes files: valid as manifests, and the real launcher makes of them the runs that they promise."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import kubernetes_validate
import pytest
import yaml
from dagster import DagsterInstance
from dagster._config import process_config, resolve_to_config_type
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.launcher import LaunchRunContext
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._serdes import ConfigurableClassData
from dagster_k8s import K8sRunLauncher

from caption_assets.config import Config
from caption_assets.configfile import load_config
from caption_assets.coordinator import ResourcesRunCoordinator
from caption_assets.definitions import build
from caption_assets.instance import step_logs_yaml
from caption_assets.steplogs import S3StepLogs

K8S = Path(__file__).parents[2] / "deploy" / "k8s"
KUBERNETES = "1.33"
MANIFESTS = ("config", "vllm", "postgres", "network")
VALUES = yaml.safe_load((K8S / "values.yaml").read_text())


def manifests(name):
    return list(yaml.safe_load_all((K8S / f"{name}.yaml").read_text()))


def named(file, kind, name):
    (found,) = [m for m in manifests(file) if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def matches(selector, labels):
    """A label selector, as Kubernetes matches it."""
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", []))


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """What stands in the ConfigMap."""
    file = tmp_path_factory.mktemp("k8s") / "caption_assets.yaml"
    file.write_text(named("config", "ConfigMap", "caption-assets-config")["data"]["caption_assets.yaml"])
    return load_config(file)


class Cluster(BaseHTTPRequestHandler):
    """An API server that takes jobs and does not run them."""

    jobs: ClassVar[list[dict]] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.jobs.append({"path": self.path, **body})
        answer = json.dumps(body).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def cluster(tmp_path):
    """The file that kubectl would use to reach it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Cluster.jobs.clear()
    reached = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(reached))
    yield str(file)
    server.shutdown()
    server.server_close()


def launched(config, kubeconfig, job_name="photos_caption_shard"):
    """The Kubernetes Job that Dagster's launcher, configured as the chart does it from values.yaml, makes of a run."""
    given = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    raw = {"containerConfig": "container_config", "podSpecConfig": "pod_spec_config", "jobSpecConfig": "job_spec_config"}
    raw |= {"podTemplateSpecMetadata": "pod_template_spec_metadata"}
    settings = {
        "load_incluster_config": False,
        "kubeconfig_file": kubeconfig,
        "job_namespace": "captions",
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "dagster_home": VALUES["global"]["dagsterHome"],
        "postgres_password_secret": VALUES["global"]["postgresqlSecretName"],
        "image_pull_policy": given["imagePullPolicy"],
        "resources": given["resources"],
        "run_k8s_config": {raw[key]: value for key, value in given["runK8sConfig"].items()},
    }
    checked = process_config(resolve_to_config_type(K8sRunLauncher.config_type()), settings)
    assert checked.success, checked.errors
    job = build(config).resolve_job_def(job_name)
    image = VALUES["dagster-user-deployments"]["deployments"][0]["image"]
    repository = ReconstructableRepository.for_module(
        "caption_assets.definitions", "defs", container_image=f"{image['repository']}:{image['tag']}"
    )
    server = VALUES["dagsterWebserver"]["workspace"]["servers"][0]
    location = GrpcServerCodeLocationOrigin(host=server["host"], port=server["port"], location_name=server["name"])
    with DagsterInstance.local_temp() as instance:
        run = instance.create_run_for_job(
            job,
            tags=job.run_tags,
            job_code_origin=repository.get_reconstructable_job(job_name).get_python_origin(),
            remote_job_origin=RemoteRepositoryOrigin(location, "__repository__").get_job_origin(job_name),
        )
        launcher = K8sRunLauncher.from_config_value(None, checked.value)
        launcher.register_instance(instance)
        launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
    (made,) = Cluster.jobs
    assert made.pop("path") == "/apis/batch/v1/namespaces/captions/jobs"
    kubernetes_validate.validate(made, KUBERNETES, strict=True)
    return made


@pytest.mark.parametrize("file", MANIFESTS)
def test_manifests_are_valid(file):
    for manifest in manifests(file):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_a_run_gets_what_the_config_asks_for_and_the_secrets_by_name(config, cluster):
    pod = launched(config, cluster)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    asked = config.resources["concat_grids"]
    assert container["image"] == "caption-assets:cpu"
    assert container["resources"]["requests"] == {"cpu": f"{asked.cpus:g}", "memory": f"{asked.memory_gb:g}Gi"}
    assert container["resources"]["limits"] == {"memory": f"{asked.memory_gb:g}Gi"}, "endpoints need no GPU here"
    assert "tolerations" not in pod["spec"]
    secrets = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "valueFrom" in entry}
    assert secrets[config.engine.api_key_env]["name"] == "caption-assets-vllm"
    assert {"DAGSTER_PG_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= secrets.keys()
    assert {"/etc/caption_assets", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and pod["spec"]["terminationGracePeriodSeconds"] == 120
    policy = named("network", "NetworkPolicy", "vllm")["spec"]
    (source,) = policy["ingress"][0]["from"]
    assert matches(source["podSelector"], pod["metadata"]["labels"]), "runs reach vLLM"
    (source,) = named("network", "NetworkPolicy", "dagster-postgres")["spec"]["ingress"][0]["from"]
    assert matches(source["podSelector"], pod["metadata"]["labels"])


def test_a_run_with_servers_of_its_own_gets_gpus_and_may_use_their_nodes(config, cluster):
    engine = {"kind": "vllm", "endpoints": [], "server_args": {"tensor_parallel_size": 2}}
    own = config.model_copy(update={"engine": config.engine.model_copy(update=engine)})
    pod = launched(own, cluster)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    Cluster.jobs.clear()
    pod = launched(own, cluster, "photos_prepare_shard")["spec"]["template"]["spec"]
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"], "grids wait for no GPU"


def test_every_vllm_server_is_an_endpoint_with_probes_and_the_key_of_the_runs(config):
    servers = named("vllm", "StatefulSet", "vllm")["spec"]
    addresses = [f"http://vllm-{number}.{servers['serviceName']}:8000/v1" for number in range(servers["replicas"])]
    assert config.engine.endpoints == addresses
    template = servers["template"]
    (container,) = template["spec"]["containers"]
    assert config.engine.model in container["command"]
    assert {probe for probe in container if probe.endswith("Probe")} == {"startupProbe", "readinessProbe", "livenessProbe"}
    key = next(entry for entry in container["env"] if entry["name"] == "VLLM_API_KEY")
    mine = VALUES["dagster-user-deployments"]["deployments"][0]["env"]
    assert key in mine
    assert matches(named("network", "NetworkPolicy", "vllm")["spec"]["podSelector"], template["metadata"]["labels"])
    assert matches({"matchLabels": named("vllm", "Service", "vllm")["spec"]["selector"]}, template["metadata"]["labels"])


def test_step_logs_go_where_the_config_has_its_store(config):
    given = VALUES["computeLogManager"]["config"]["customComputeLogManager"]
    assert given == yaml.safe_load(step_logs_yaml(config))["compute_logs"]
    assert process_config(resolve_to_config_type(S3StepLogs.config_type()), given["config"]).success


def test_the_run_queue_gives_runs_of_the_asset_graph_their_resources():
    given = VALUES["dagsterDaemon"]["runCoordinator"]["config"]["customRunCoordinator"]
    made = ConfigurableClassData(given["module"], given["class"], yaml.safe_dump(given["config"])).rehydrate(
        as_type=ResourcesRunCoordinator
    )
    assert isinstance(made, ResourcesRunCoordinator)


def test_values_hold_no_secret_and_show_nothing_beyond_the_cluster():
    text = (K8S / "values.yaml").read_text()
    assert "postgresqlPassword:" not in text and VALUES["generatePostgresqlPasswordSecret"] is False
    assert "ingress" not in VALUES and VALUES["dagsterWebserver"]["service"]["type"] == "ClusterIP"
    assert VALUES["dagsterWebserver"]["enableReadOnly"] is True
