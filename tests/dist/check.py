"""Holds dist/helm, dist/kubernetes and dist/nomad against the tools that read them: Helm's own linter and renderer, the
schemas of Kubernetes and a parser of HCL. Prints what other checks need, as JSON.

    check.py DIST MANIFESTS    MANIFESTS is written: the chart as it is without any value
"""

import json
import sys
from pathlib import Path

import hcl2
import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

NAMESPACE = "burrow"
VERSIONS = ["1.30", "1.34"]
EVERYTHING = {
    "image": {"repository": "registry.example.org/burrow", "tag": "1"},
    "bridge": {
        "nodeSelector": {"burrow": "yes"},
        "tolerations": [{"key": "burrow", "operator": "Exists"}],
        "resources": {"requests": {"memory": "1Gi"}},
        "settings": {"BURROW_DEFAULTS_MEMORY_MIB": "1024"},
        "allowedHosts": ["burrow.example.org"],
    },
    "fleet": {"labels": ["zone=a"], "quotas": ["team=50"]},
    "tls": {"secretName": "burrow-tls"},
    "nats": {
        "storageClassName": "fast",
        "resources": {"requests": {"memory": "1Gi"}},
        "tls": {"secretName": "nats-tls"},
    },
}


def documents(chart: Path, values: dict) -> tuple[str, list[dict]]:
    """The manifests as text, in the order of their files, and each of them."""
    rendered = Chart.load(chart).render(values, name="burrow", namespace=NAMESPACE)
    texts = [rendered[path].strip() for path in sorted(rendered) if path.endswith(".yaml")]
    text = "\n---\n".join(texts) + "\n"
    return text, [found for found in yaml.safe_load_all(text) if found]


def checked(chart: Path, values: dict) -> tuple[str, list[dict]]:
    report = lint(chart, values, strict=True, namespace=NAMESPACE)
    # 1 is information: the chart has no icon.
    serious = [one for one in report["messages"] if one["severity"] > 1]
    assert not serious and not report["errors"], report
    text, found = documents(chart, values)
    for document in found:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        assert document["metadata"]["namespace"] == NAMESPACE, document["metadata"]
    return text, found


def one(found: list[dict], kind: str, name: str) -> dict:
    (match,) = [it for it in found if it["kind"] == kind and it["metadata"]["name"] == name]
    return match


def names_agree(found: list[dict]) -> None:
    """What refers to something else of the chart finds it."""
    pods = [it["spec"]["template"] for it in found if it["kind"] in ("DaemonSet", "StatefulSet")]
    for pod in pods:
        one(found, "ServiceAccount", pod["spec"]["serviceAccountName"])
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | {"data"}
        every = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
        for container in every:
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= volumes, (mounted, volumes)
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["port"] in ports, container[probe]
    for service in (it for it in found if it["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, service["metadata"]["name"]
        ports = {port["name"] for it in chosen[0]["spec"]["containers"] for port in it["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def environment(found: list[dict]) -> dict[str, str]:
    (container,) = one(found, "DaemonSet", "burrow")["spec"]["template"]["spec"]["containers"]
    return {it["name"]: it.get("value", "") for it in container["env"]}


def nomad(path: Path) -> dict[str, str]:
    with path.open() as text:
        job = hcl2.load(text)
    plain = json.loads(json.dumps(job).replace('\\"', ""))
    (named,) = plain["job"]
    (body,) = named.values()
    (task,) = body["group"][0]["bridge"]["task"]
    assert body["type"] == "system", body["type"]
    assert task["bridge"]["driver"] == "raw_exec", task
    (config,) = task["bridge"]["config"]
    assert config["args"] == ["serve"], config
    (env,) = task["bridge"]["env"]
    return {name: str(value) for name, value in env.items() if name.startswith("BURROW_")}


def main() -> None:
    dist, manifests = Path(sys.argv[1]), Path(sys.argv[2])
    chart = dist / "helm" / "burrow"
    text, plain = checked(chart, {})
    manifests.write_text(text)
    _, full = checked(chart, EVERYTHING)
    for found in (plain, full):
        names_agree(found)
    config = one(plain, "ConfigMap", "burrow-nats")["data"]["nats-server.conf"]
    print(
        json.dumps(
            {
                "bridge": environment(plain),
                "bridge_with_all": environment(full),
                "nomad": nomad(dist / "nomad" / "burrow.nomad.hcl"),
                "nats": config,
            }
        )
    )


main()
