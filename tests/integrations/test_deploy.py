"""The chart of `deploy`, rendered and held against Kubernetes' schemas, and its neighbours."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from runtime import Runtime
from runtime.cli.program import build
from runtime.http import Server, ServerSettings
from tests.house import ROOT

jsonschema = pytest.importorskip("jsonschema")
kubernetes_validate = pytest.importorskip("kubernetes_validate")
yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.integrations

DEPLOY = ROOT / "deploy"
KUBERNETES = "1.31"
CORE = {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Pod"}
EVERYTHING = {
    "image": {"repository": "r.example.com/m", "tag": "v1", "pullPolicy": "Always"},
    "pullSecrets": ["one", "two"],
    "workers": 4,
    "models": {"path": "/data/my models", "claim": "shared", "poll": 2.5},
    "settings": {"drain_delay": 5, "max_body": 8388608, "ready_needs_all": True, "access_log": "-"},
    "arguments": ["--memory=2G", "--strict"],
    "tokens": {"secret": "clients", "key": "clients.txt"},
    "tls": {"secret": "certificate"},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a.b/c": "yes: no"}},
    "autoscaling": {
        "enabled": True,
        "minimum": 2,
        "maximum": 9,
        "cpu": 60,
        "queuedSeconds": "50m",
        "lateRequests": "500m",
    },
    "disruption": {"enabled": True, "maxUnavailable": "20%"},
    "monitor": {"enabled": True, "interval": "5s", "token": {"secret": "scraper", "key": "t"}},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "models", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
Render = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render the chart with these values over its own; manifests by their kind."""
    go, place = Path(sys.executable).parent / "go", tmp_path_factory.mktemp("go")
    environment = {"HOME": str(place), "GOCACHE": str(place / "cache"), "PATH": "/usr/bin:/bin"}
    command = [str(go), "build", "-o", str(place / "chart"), "chart.go"]
    subprocess.run(command, cwd=Path(__file__).parent, env=environment, check=True, timeout=300)
    chart = yaml.safe_load((DEPLOY / "helm/Chart.yaml").read_text(encoding="utf-8"))
    about = {"Chart": {"AppVersion": chart["appVersion"]}}

    def rendered(values: dict[str, Any], name: str = "fraud") -> dict[str, Any]:
        release = {"Name": name, "Service": "Helm"}
        merged = _values()
        for key, value in values.items():
            inner = merged[key]
            merged[key] = (
                {**inner, **value} if isinstance(inner, dict) and key != "settings" else value
            )
        _schema().validate(merged)
        data = json.dumps({**about, "Release": release, "Values": merged})
        text = subprocess.run(
            [place / "chart", DEPLOY / "helm"],
            input=data,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        manifests = [each for each in yaml.safe_load_all(text) if each]
        assert len({each["kind"] for each in manifests}) == len(manifests)
        return {each["kind"]: each for each in manifests}

    return rendered


def _values() -> dict[str, Any]:
    text = (DEPLOY / "helm/values.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def _schema() -> Any:
    text = (DEPLOY / "helm/values.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text))


def _command(pod: dict[str, Any]) -> Any:
    """The options of the command that a pod's container runs, as `pretzel` reads them."""
    program, *arguments = pod["containers"][0]["command"]
    assert program == "/opt/pretzel/bin/pretzel"
    return build({arguments[0]}).parse_args(arguments)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["usual", "everything"])
@pytest.mark.parametrize("name", ["fraud", "x" * 53])
def test_the_chart(render: Render, values: dict[str, Any], name: str) -> None:
    found = render(values, name)
    wanted = {"Deployment", "Service", "PodDisruptionBudget"}
    more = {"HorizontalPodAutoscaler", "ServiceMonitor"} if values else set()
    assert set(found) == wanted | more
    for kind in CORE & set(found):
        kubernetes_validate.validate(found[kind], KUBERNETES, strict=True)
    template = found["Deployment"]["spec"]["template"]
    labels, pod = template["metadata"]["labels"].items(), template["spec"]
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ]
    assert all(each.items() <= labels for each in selectors)
    assert ("replicas" in found["Deployment"]["spec"]) is not bool(values)
    options = _command(pod)
    mounted = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert set(mounted) == {each["name"] for each in pod["volumes"]}
    assert mounted.get("models", options.folder) == options.folder
    assert options.tokens is None or Path(options.tokens).parent == Path(mounted["tokens"])
    assert pod["terminationGracePeriodSeconds"] > 35
    probe, tls = pod["containers"][0]["readinessProbe"]["httpGet"], options.tls_cert
    assert probe["scheme"] == ("HTTPS" if values else "HTTP")
    assert (tls is None) != bool(values)
    assert tls is None or Path(tls).parent == Path(mounted["tls"])
    if values:
        monitored = found["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
        assert monitored <= found["Service"]["metadata"]["labels"].items()
        assert len(found["HorizontalPodAutoscaler"]["spec"]["metrics"]) == 3
        assert (options.workers, options.poll, options.strict) == (4, 2.5, True)
        assert "max_body=8388608" in options.set


def test_the_server_has_what_the_chart_names(render: Render) -> None:
    pod = render({})["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = dict(each.split("=", 1) for each in _command(pod).set)
    usual = ServerSettings(port=0, drain_delay=float(settings.pop("drain_delay")))
    assert not settings
    assert pod["terminationGracePeriodSeconds"] > usual.drain_delay + usual.drain_seconds
    with Runtime() as runtime, Server(runtime, usual) as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            with urlopen(server.url + container[probe]["httpGet"]["path"]) as answer:
                assert answer.status == 200


def test_the_page_has_values_of_the_chart(render: Render) -> None:
    page = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
    values = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert "HorizontalPodAutoscaler" in render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"workers": 0},
        {"workers": "two"},
        {"replica": 3},
        {"models": {"path": "models"}},
        {"service": {"type": "Public"}},
        {"settings": {"drain_delay": [5]}},
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _schema().validate({**_values(), **values})


def _documents(name: str) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))


def _is_a_pod(spec: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_runtime_of_kserve(tmp_path: Path) -> None:
    """The model is served under the name of its InferenceService, whatever its file is called."""
    (runtime,) = _documents("kserve.yaml")
    _is_a_pod({"containers": runtime["spec"]["containers"]})
    *shell, script = runtime["spec"]["containers"][0]["command"]
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt/model.txt").write_text("tree")
    for before, after in {
        "/mnt/models": str(tmp_path / "mnt"),
        "/tmp/models": str(tmp_path / "models"),
        "{{.Name}}": "fraud",
        "exec /opt/pretzel/bin/pretzel": "echo",
    }.items():
        assert before in script
        script = script.replace(before, after)
    said = subprocess.run([*shell, script], check=True, capture_output=True, text=True, timeout=60)
    options = build({"serve"}).parse_args(shlex.split(said.stdout))
    assert (options.folder, options.port) == (str(tmp_path / "models"), 8080)
    assert (tmp_path / "models/fraud/model.txt").read_text() == "tree"


def test_the_cluster_on_kuberay() -> None:
    cluster, job = _documents("ray.yaml")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        _is_a_pod(group["template"]["spec"])
    program, *arguments = shlex.split(job["spec"]["entrypoint"])
    options = build({"cluster"}).parse_args(arguments)
    assert (program, options.what, options.replicas) == (
        "/opt/pretzel/bin/pretzel",
        "/models",
        "3..8",
    )
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}


def test_the_compose_file(tmp_path: Path) -> None:
    (compose,) = _documents("compose/compose.yaml")
    folder = tmp_path / "compose"
    shutil.copytree(DEPLOY / "compose", folder)
    made = [sys.executable, "-m", "runtime", "dashboard", "--into", str(folder / "monitoring")]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            assert (folder / volume.split(":")[0]).exists(), volume
    (prometheus,) = _documents("compose/prometheus.yaml")
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in compose["services"]
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "config", folder / "prometheus.yaml"], check=True)
    healthy = compose["services"]["pretzel"]["healthcheck"]["test"]
    compile(healthy[-1], "healthcheck", "exec")


def test_the_unit_of_systemd(tmp_path: Path) -> None:
    text = (DEPLOY / "pretzel.service").read_text(encoding="utf-8")
    assert text in (ROOT / "docs/how-to/systemd.md").read_text(encoding="utf-8")
    (line,) = [each for each in text.splitlines() if each.startswith("ExecStart=")]
    assert build({"serve"}).parse_args(shlex.split(line)[1:]).workers == 4
    unit = tmp_path / "pretzel.service"
    unit.write_text(text.replace("/opt/pretzel/bin/pretzel", "/bin/true"), encoding="utf-8")
    if verify := shutil.which("systemd-analyze"):
        done = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "pretzel.service" not in done.stderr
