"""Spark on Kubernetes copies a topic exactly once while its pods are killed and as a user, and runs in cluster mode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from certificates import Authority
from kubernetes_cluster import DRIVERS, MANIFESTS, SMALL, KubernetesCluster, kustomization

pytestmark = pytest.mark.compat

ROWS = 2_000
EXECUTORS = "spark-role=executor"
PASSWORDS = {"admin": "the password of admin", "spark": "the password of spark"}
USER_AND_RIGHTS = """
name = sys.argv[1]
info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
rights = [("TOPIC", "orders", "LITERAL", "READ"), ("TOPIC", "copies", "LITERAL", "WRITE")]
rights += [("TOPIC", "__tidelog_spark_sinks", "LITERAL", right) for right in ("CREATE", "READ", "WRITE", "DESCRIBE")]
rights += [
    ("TRANSACTIONAL_ID", "tidelog-spark-", "PREFIXED", right) for right in ("WRITE", "DESCRIBE", "TWO_PHASE_COMMIT")
]
acls = [AclBinding(kind, at, pattern, "User:" + name, "*", right, "ALLOW") for kind, at, pattern, right in rights]
with AdminClient(servers) as admin:
    changes = [UserScramCredentialUpsertion(name, info, sys.argv[2].encode())]
    for future in (*admin.alter_user_scram_credentials(changes).values(), *admin.create_acls(acls).values()):
        future.result(120)
"""
IMAGE = "tidelog-spark:0.1.0"
MOUNT = {"name": "programs", "mountPath": "/etc/programs"}
PROGRAMS = {"name": "programs", "configMap": {"name": "programs"}}
REPORT = """
import socket
import tidelog.spark
spark = tidelog.spark.session("report")
rows = spark.read.format("tidelog").option("bootstrap.servers", "tidelog:9094").option("subscribe", "orders").load()
hosts = rows.rdd.mapPartitions(lambda found: [(socket.gethostname(), sum(1 for _ in found))]).collect()
place = "driver" if socket.gethostname() in dict(hosts) else "executors"
print(spark.sparkContext.master, "has read", sum(count for _, count in hosts), "rows on", place)
spark.stop()
"""
SUBMISSION = {
    "spark.kubernetes.container.image": IMAGE,
    "spark.kubernetes.authenticate.driver.serviceAccountName": "tidelog-spark",
    "spark.kubernetes.driver.podTemplateFile": "/etc/programs/driver.yaml",
    "spark.kubernetes.driver.request.cores": "250m",
    "spark.kubernetes.executor.request.cores": "500m",
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "2",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}
SINGLE = """
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.two.phase.commit.enable=true
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """An open cluster with rows in its topic ``orders``."""
    with KubernetesCluster() as created:
        created.start_nodes(MANIFESTS / "overlays" / "dev")
        created.produce(ROWS)
        yield created


def test_stream_copies_each_row_once_while_executors_and_drivers_are_killed(cluster: KubernetesCluster) -> None:
    cluster.apply(MANIFESTS / "spark")
    cluster.wait_for(lambda: len(cluster.copied()) >= ROWS // 2, "the first rows")

    cluster.produce(ROWS)
    executors = cluster.running(EXECUTORS)
    cluster.kill([min(executors)])
    cluster.produce(ROWS)
    cluster.wait_for(lambda: len(cluster.copied()) >= 2 * ROWS, "rows after an executor was killed")
    cluster.wait_for(lambda: len(cluster.running(EXECUTORS) - executors) == 1, "an executor for the killed one")

    executors, drivers = cluster.running(EXECUTORS), cluster.running(DRIVERS)
    cluster.produce(ROWS)
    cluster.kill(drivers)
    cluster.produce(ROWS)
    cluster.wait_for(lambda: len(cluster.copied()) >= cluster.written, "all rows after the driver was killed")
    assert sorted(cluster.copied()) == list(range(cluster.written))
    cluster.wait_for(lambda: cluster.open_transactions() == [], "the end of all transactions")
    assert not cluster.running(DRIVERS) & drivers
    cluster.wait_for(lambda: not cluster.running(EXECUTORS) & executors, "the end of the killed driver's executors")


def test_program_in_cluster_mode_reads_on_executors(cluster: KubernetesCluster) -> None:
    cluster.apply(MANIFESTS / "spark")
    cluster.kubectl("scale", "deployment/tidelog-spark-driver", "--replicas=0")
    template = {"spec": {"containers": [{"name": "driver", "volumeMounts": [MOUNT]}], "volumes": [PROGRAMS]}}
    files = {"report.py": REPORT, "driver.yaml": json.dumps({"apiVersion": "v1", "kind": "Pod"} | template)}
    literals = (f"--from-literal={name}={text}" for name, text in files.items())
    cluster.kubectl("create", "configmap", "programs", *literals)
    settings = SUBMISSION | {"spark.kubernetes.namespace": cluster.namespace}
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    master = ["--master", "k8s://https://kubernetes.default.svc", "--deploy-mode", "cluster"]
    command = ["spark-submit", *master, *words, "local:///etc/programs/report.py"]
    container = {"name": "submit", "image": IMAGE, "args": command, "volumeMounts": [MOUNT]}
    spec = {"restartPolicy": "Never", "serviceAccountName": "tidelog-spark", "volumes": [PROGRAMS]}
    overrides = json.dumps({"spec": spec | {"containers": [container]}})
    cluster.kubectl("run", "submit", f"--image={IMAGE}", f"--overrides={overrides}")
    cluster.wait_for(lambda: cluster.phases("spark-role=driver") == {"Succeeded"}, "the end of the program")
    output = cluster.kubectl("logs", "--selector=spark-role=driver", "--tail=-1")
    assert f"k8s://https://kubernetes.default.svc has read {cluster.written} rows on executors" in output


def test_stream_copies_each_row_once_as_a_user_with_a_password_and_tls(tmp_path: Path) -> None:
    with KubernetesCluster() as cluster:
        client = json.loads((MANIFESTS / "overlays" / "spark-secured" / "client.json").read_text())
        client["bootstrap.servers"] = cluster.settings["bootstrap.servers"]
        own = {"sasl.username": "admin", "sasl.password": PASSWORDS["admin"]}
        cluster.settings = {key: value for key, value in client.items() if key != "config.providers"} | own
        create_secrets(cluster)
        cluster.start_nodes(secured_cluster_of_one(tmp_path / "cluster"))
        cluster.run(USER_AND_RIGHTS, "spark", PASSWORDS["spark"])
        cluster.produce(ROWS)
        cluster.apply(merged(tmp_path / "spark", "overlays/spark-secured", {"client.json": json.dumps(client)}))
        cluster.wait_for(lambda: len(cluster.copied()) >= ROWS, "all rows")
        assert sorted(cluster.copied()) == list(range(ROWS))
        [driver] = cluster.running(DRIVERS)
        assert PASSWORDS["spark"] not in cluster.kubectl("logs", driver)


def create_secrets(cluster: KubernetesCluster) -> None:
    """Create the Secrets of deploy/README.md and of docs/spark-clusters.md."""
    authority = Authority()
    hosts = {
        "tidelog-quorum": ["tidelog-quorum-1.tidelog-quorum"],
        "tidelog-node": [f"*.tidelog-node.{cluster.namespace}.svc", f"tidelog.{cluster.namespace}.svc"],
    }
    for name, names in hosts.items():
        issued = authority.issue(name, names)
        pem = issued.key_pem() + issued.certificate_pem
        cluster.create_secret(f"{name}-tls", {"ca.crt": authority.pem, "tls-combined.pem": pem})
    cluster.create_secret("tidelog-admin", {"password": PASSWORDS["admin"]})
    cluster.create_secret("tidelog-client-tls", {"ca.crt": authority.pem})
    cluster.create_secret("tidelog-spark-login", {"password": PASSWORDS["spark"]})


def secured_cluster_of_one(folder: Path) -> Path:
    """Return a kustomization of the overlay ``secured`` with one small controller and storage node."""
    folder.mkdir()
    entries = []
    for role in ("quorum", "node"):
        text = (MANIFESTS / "overlays" / "secured" / f"{role}.properties").read_text()
        lines = [line.partition(",2@")[0] if "quorum.voters" in line else line for line in text.splitlines()]
        kept = [line for line in lines if not line.startswith(("default.replication", "min.insync"))]
        (folder / f"{role}.properties").write_text("\n".join(kept) + (SINGLE if role == "node" else "\n"))
        entries.append(
            {"name": f"tidelog-{role}", "behavior": "replace", "files": [f"server.properties={role}.properties"]}
        )
    replicas = [{"name": entry["name"], "count": 1} for entry in entries]
    return kustomization(folder, "overlays/secured", configMapGenerator=entries, replicas=replicas, patches=[SMALL])


def merged(folder: Path, base: str, files: Mapping[str, str]) -> Path:
    """Return a kustomization of Spark with other files."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    entry = {"name": "tidelog-spark", "behavior": "merge", "files": [f"{name}={name}" for name in files]}
    return kustomization(folder, base, configMapGenerator=[entry])
