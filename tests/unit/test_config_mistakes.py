"""Every mistake is told with file, line, column, path, value and what was expected; all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuwatch.config import document
from tests.unit.config_files import problems

RULE = "rules:\n  - name: r\n    severity: warning\n"
HOT = RULE + "    metric: gpu.temperature\n"
XID = RULE + "    event: xid\n"
WORKLOAD = "workloads:\n  - name: w\n"
UNITS = WORKLOAD + "    units: [a.service]\n"
CHANNEL = "alerts:\n  channels:\n    - name: ops\n      type: wecom\n"
KEYED = CHANNEL + "      key: {credential: ops}\n"
NO_SECRET = "holds a key or a password; the configuration holds none"

# (text of gpuwatch.yaml, "line:column: path: text", which may be the beginning of a longer one)
MISTAKES = [
    # single settings
    ("mode: enforse\n", "1:7: mode: 'enforse' is not one of observe, enforce (did you mean enforce?)"),
    ("modee: observe\n", "1:1: no setting 'modee' here (did you mean mode?)"),
    ("Mode: observe\n", "1:1: no setting 'Mode' here (did you mean mode?)"),
    ("mode:\n", "1:6: mode: has no value; expected one of observe, enforce"),
    ("mode: [observe]\n", "1:7: mode: expected one of observe, enforce, not a list"),
    ("mode: observe\nmode: enforce\n", "2:1: 'mode' is given twice (first on line 1)"),
    ("language: de\n", "1:11: language: 'de' is not one of en, zh"),
    ("interval: 30\n", "1:11: interval: '30' is not a duration such as 30s, 10m or 4h (its unit is missing)"),
    ("interval: 1m\n", "1:11: interval: '1m' is outside 500ms to 10s"),
    ("labels: [a]\n", "1:9: labels: expected labels such as {site: sh1}, not a list"),
    ("labels: {a: [1]}\n", "1:13: labels: the value of a label is a single text or number, not a list"),
    ("labels: {a: 1, a: 2}\n", "1:16: labels: label 'a' is given twice"),
    ("budget: {destructive: -1}\n", "1:23: budget.destructive: '-1' is not a whole number from 0 to 1000"),
    ("budget: 3\n", "1:9: budget: expected settings (destructive, within, heat_per_gpu), not a single value"),
    ("evidence: {keep: {count: 1}}\n", "1:26: evidence.keep.count: '1' is not a whole number from 10 to 100000"),
    # what does not exist yet must not be believed to protect
    ("throttle: {clocks: []}\n", "1:12: throttle: 'clocks' is not in this version: only the power limit is lowered"),
    ("evidence: {keep: {age: 30d}}\n", "1:19: evidence.keep: 'age' is not in this version: bundles are kept by count"),
    ("evidence: {archive: {after: 7d}}\n", "1:12: evidence: 'archive' is not in this version: bundles are copied"),
    ("alerts: {repeat: 4h}\n", "1:10: alerts: 'repeat' is not in this version: an open incident is not told again"),
    (UNITS + "    allow: [freeze]\n", "4:13: workloads[0].allow[0]: 'freeze' is not in this version; there is snap"),
    (UNITS + "    throttle: {}\n", "4:5: workloads[0]: 'throttle' is written once for the host, throttle: {step: 15%"),
    (UNITS + "    stop: {checkpoint: {signal: SIGUSR1}}\n", "4:24: workloads[0].stop.checkpoint: 'wait' is missing"),
    (
        UNITS + "    stop: {checkpoint: {signal: SIGKILL, wait: 5s}}\n",
        "4:33: workloads[0].stop.checkpoint.signal: 'SIGKILL' is not one of SIGUSR1",
    ),
    (
        HOT + "    above: 90\n    ladder: [{do: [freeze]}]\n",
        "6:20: rules[0].ladder[0].do[0]: 'freeze' is not in this",
    ),
    (
        "alerts: {channels: [{name: m, type: email, server: 'smtp.example.com:587'}]}\n",
        "1:37: alerts.channels[0].type: 'email' is not in this version; there is wecom",
    ),
    ("channels: []\n", "1:1: 'channels' belongs below alerts"),
    # workloads and protected units
    (WORKLOAD, "2:5: workloads[0]: needs 'units' or 'containers', e.g. units: [\"train@*.service\"]"),
    (WORKLOAD + "    containers: []\n", "3:17: workloads[0].containers: is empty"),
    (WORKLOAD + "    containers: trainer-*\n", "3:17: workloads[0].containers: expected a list: [trainer-*], not a"),
    (
        WORKLOAD + "    containers: ['*']\n",
        "3:18: workloads[0].containers[0]: '*' names every container of the host",
    ),
    (
        WORKLOAD + "    containers: ['compose:*/x']\n",
        "3:18: workloads[0].containers[0]: 'compose:*/x' names every container of the host",
    ),
    (
        WORKLOAD + "    containers: ['compose:llama']\n",
        "3:18: workloads[0].containers[0]: 'compose:llama' names no service; compose:PROJECT/* means",
    ),
    (
        WORKLOAD + "    containers: ['label:team']\n",
        "3:18: workloads[0].containers[0]: 'label:team' is not a container's",
    ),
    (
        WORKLOAD + "    containers: ['a b']\n",
        "3:18: workloads[0].containers[0]: 'a b' is not a container's name such as",
    ),
    (
        WORKLOAD + "    containers: ['nvcr.io/nvidia/pytorch:26.01-py3']\n",
        "3:18: workloads[0].containers[0]: 'nvcr.io/nvidia/pytorch:26.01-py3' is not a container's name such as",
    ),
    (
        WORKLOAD + "    containers: ['k8s_*']\n",
        "3:18: workloads[0].containers[0]: 'k8s_*' names containers of Kubernetes",
    ),
    (
        WORKLOAD + "    containers: [a]\n  - name: v\n    containers: [a]\n",
        "4:5: workloads[v].containers: 'a' belongs to workload 'w' already",
    ),
    (
        WORKLOAD + "    units: ['docker-*.scope']\n",
        "3:13: workloads[0].units[0]: 'docker-*.scope' is the scope of a container",
    ),
    ("workloads:\n  - units: [a.service]\n", "2:5: workloads[0]: 'name' is missing, e.g. name: training"),
    (
        "workloads:\n  - training\n",
        "2:5: workloads[0]: expected a workload ('name: ...' and its settings), not a single",
    ),
    ("workloads: training\n", "1:12: workloads: expected a list of workloads ('- name: ...'), not a single value"),
    (WORKLOAD + "    units: []\n", "3:12: workloads[0].units: is empty"),
    (WORKLOAD + "    units: a.service\n", "3:12: workloads[0].units: expected a list: [a.service], not a single value"),
    (
        WORKLOAD + "    units: [user.slice]\n",
        "3:13: workloads[0].units[0]: 'user.slice' is a slice; only leaf units can",
    ),
    (WORKLOAD + "    units: ['*.service']\n", "3:13: workloads[0].units[0]: '*.service' names every unit of the host"),
    (WORKLOAD + "    units: [session-3.scope]\n", "3:13: workloads[0].units[0]: 'session-3.scope' is a login session"),
    (WORKLOAD + "    units: [sshd.service]\n", "3:13: workloads[0].units[0]: 'sshd.service' is one of the units that"),
    (
        WORKLOAD + "    units: [train]\n",
        "3:13: workloads[0].units[0]: 'train' has no unit suffix (did you mean 'train.",
    ),
    (WORKLOAD + "    units: [a.timer]\n", "3:13: workloads[0].units[0]: 'a.timer' is a .timer unit; only services and"),
    (WORKLOAD + "    units: [a/b.service]\n", "3:13: workloads[0].units[0]: 'a/b.service' is not a unit name such as"),
    (
        WORKLOAD + "    units: [a.service, a.service]\n",
        "3:24: workloads[0].units[1]: 'a.service' is in the list already",
    ),
    (
        UNITS + "  - name: w\n    units: [b.service]\n",
        "4:5: workloads[1]: there is a workload 'w' in this file already",
    ),
    (UNITS + "  - name: v\n    units: [a.service]\n", "4:5: workloads[v].units: 'a.service' belongs to workload 'w'"),
    (UNITS + "    allow:\n", "4:11: workloads[0].allow: has no value; write [] for an empty list"),
    (UNITS + "    stop: {grace: forever}\n", "4:19: workloads[0].stop.grace: 'forever' is not a duration such as 30s"),
    (UNITS + "    priority: high\n", "4:15: workloads[0].priority: 'high' is not a whole number from 0 to 1000"),
    ("workloads:\n  - {name: x, enabled: false}\n", "2:5: workloads: there is no workload 'x' to turn off"),
    ("protect: {units: [system.slice]}\n", "1:19: protect.units[0]: 'system.slice' is a slice and would protect noth"),
    ("protect: {units: [sql]}\n", "1:19: protect.units[0]: 'sql' has no unit suffix and would protect nothing"),
    # rules
    (RULE, "2:5: rules[0]: needs 'metric' or 'event'"),
    (
        XID + "    metric: gpu.temperature\n    above: 3\n",
        "4:12: rules[0]: has 'metric' and 'event'; a rule is about one",
    ),
    ("rules:\n  - name: r\n    event: xid\n", "2:5: rules[0]: 'severity' is missing, e.g. severity: warning"),
    (HOT, "2:5: rules[0]: needs 'above' or 'below'"),
    (HOT + "    above: 1\n    below: 2\n", "6:12: rules[0]: has 'above' and 'below'; a limit is one of them"),
    (HOT + "    above: hot\n", "5:12: rules[0].above: 'hot' is not a number of degrees Celsius (1 to 125)"),
    (HOT + "    above: 200\n", "5:12: rules[0].above: '200' is not a number of degrees Celsius (1 to 125)"),
    (HOT + "    above: 125\n", "5:12: rules[0].above: no reading can be above 125: gpu.temperature is 1 to 125"),
    (
        HOT + "    above: 90C\n",
        "5:12: rules[0].above: '90C' is not a number of degrees Celsius (1 to 125); write the num",
    ),
    (HOT + "    above: .nan\n", "5:12: rules[0].above: '.nan' is not a number of degrees Celsius (1 to 125)"),
    (
        HOT + "    above: 90\n    clear: {above: 80}\n",
        "6:20: rules[0].clear.above: clears on the side it fires on; a ru",
    ),
    (
        HOT + "    above: 90\n    clear: {below: 95}\n",
        "6:20: rules[0].clear.below: would clear while it fires; it must",
    ),
    (
        HOT + "    below: 5\n    clear: {above: 4}\n",
        "6:20: rules[0].clear.above: would clear while it fires; it must b",
    ),
    (HOT + "    above: 90\n    clear: {for: 5s}\n", "6:12: rules[0].clear: needs 'above' or 'below'"),
    (HOT + "    above: 90\n    for: 5\n", "6:10: rules[0].for: '5' is not a duration such as 30s, 10m or 4h (its unit"),
    (HOT + "    above: 90\n    fore: 5s\n", "6:5: rules[0]: no setting 'fore' here (did you mean for?)"),
    (HOT + "    above: 90\n    quiet_for: 5m\n", "6:16: rules[0].quiet_for: is for rules about an event; use clear"),
    (
        HOT + "    above: 90\n    unless_supported: gpu.temperature\n",
        "6:23: rules[0].unless_supported: is the rule's own",
    ),
    (
        HOT + "    above: 90\n    unless_supported: host.driver_silent\n",
        "6:23: rules[0].unless_supported: 'host.driver_silent' is not a metric of a GPU",
    ),
    (
        HOT + "    above: 90\n    ladder: [stop]\n",
        "6:14: rules[0].ladder[0]: expected settings (do, after, worse), not",
    ),
    (
        HOT + "    above: 90\n    ladder: [{do: [stpo]}]\n",
        "6:20: rules[0].ladder[0].do[0]: 'stpo' is not one of snapshot",
    ),
    (
        RULE + "    metric: gpu.memory_used_ratio\n    above: 95\n",
        "5:12: rules[0].above: '95' is not a ratio (0 to 1); 95",
    ),
    (
        RULE + "    metric: gpu.memory_used\n    above: 60G\n",
        "5:12: rules[0].above: '60G' is not a size such as 60GiB (0",
    ),
    (
        RULE + "    metric: host.driver_silent\n    above: long\n",
        "5:12: rules[0].above: 'long' is not a duration such as",
    ),
    (RULE + "    event: xidd\n", "4:12: rules[0].event: no event 'xidd' (did you mean xid?)"),
    (RULE + "    event: {codes: [79]}\n", "4:12: rules[0].event: 'kind' is missing, e.g. kind: xid"),
    (
        RULE + "    event: {kind: gpu_lost, codes: [79]}\n",
        "4:36: rules[0].event.codes: an event of kind gpu_lost has no",
    ),
    (RULE + "    event: {kind: sxid, classes: [link]}\n", "4:34: rules[0].event.classes: an event of kind sxid has no"),
    (
        RULE + "    event: {kind: xid, codes: [x]}\n",
        "4:32: rules[0].event.codes[0]: 'x' is not a whole number from 1 to",
    ),
    (
        RULE + "    event: {kind: xid, classes: [links]}\n",
        "4:34: rules[0].event.classes[0]: 'links' is not one of applic",
    ),
    (XID + "    for: 5s\n", "5:10: rules[0].for: is for rules about a metric; an event just happens"),
    (XID + "    quiet_for: never\n", "5:16: rules[0].quiet_for: 'never' is not a duration such as 10m, or reboot"),
    (
        "rules:\n  - {name: r, event: xid, severity: info, ladder: [{do: [stop]}]}\n",
        "2:51: rules[0].ladder: stops something, and nobody is told at severity info",
    ),
    (
        "rules:\n  - {name: gpu-hott, enabled: false}\n",
        "2:5: rules: there is no rule 'gpu-hott' to turn off (did you mean",
    ),
    ("rules:\n  - {name: a b, event: xid, severity: info}\n", "2:12: rules[0].name: 'a b' is not a name of letters"),
    # channels and secrets
    (CHANNEL, "3:7: alerts.channels[0]: 'key' is missing"),
    (CHANNEL + "      key: my-own-secret\n", "5:12: alerts.channels[0].key: a key never stands in the configuration"),
    (
        CHANNEL + "      key: {credential: ../x}\n",
        "5:25: alerts.channels[0].key.credential: expected the name of a cred",
    ),
    (
        CHANNEL + "      key: {file: wecom.key}\n",
        "5:19: alerts.channels[0].key.file: expected the absolute path of a fi",
    ),
    (CHANNEL + "      key: {}\n", "5:12: alerts.channels[0].key: needs one of 'credential' and 'file'"),
    (CHANNEL + "      key: {credential: a, file: /b}\n", "5:12: alerts.channels[0].key: needs one of 'credential' and"),
    (KEYED + "      url: https://example.com/send?key=693a91f6\n", f"6:12: alerts.channels[0].url: {NO_SECRET}"),
    (
        KEYED + "      url: http://example.com\n",
        "6:12: alerts.channels[0].url: 'http://example.com' is not https://HOST",
    ),
    (
        KEYED + "      severities: [info]\n",
        "6:20: alerts.channels[0].severities[0]: 'info' is only logged; there is war",
    ),
    (KEYED + "      mention: ['a b']\n", "6:17: alerts.channels[0].mention[0]: 'a b' is not @all, a member's id or"),
    ("labels: {link: 'https://u:geheim@example.com'}\n", f"1:16: labels.link: {NO_SECRET}"),
    # YAML itself
    ("- mode\n", "1:1: expected settings such as 'mode: observe', not a list"),
    ("just text\n", "1:1: expected settings such as 'mode: observe', not a single value"),
    ("a: b: c\n", "1:5: not valid YAML: a ':' where none can stand (wrong indentation, or missing quotes)"),
    ("mode: observe\n\tlanguage: en\n", "2:1: a tab; YAML takes only spaces for indentation"),
    ("mode: 'observe\n", "1:7: not valid YAML: a quote that is opened is not closed"),
    ("mode: observe\nlanguage\n", "2:1: not valid YAML: a name without its ':'"),
    ("labels:\n  a: 1\n b: 2\n", "3:2: not valid YAML: the indentation does not fit the lines above"),
    ("mode: @x\n", "1:7: not valid YAML: a text that begins like this needs quotes"),
    ("rules: [\n", "2:1: not valid YAML: a value, a list or a '{' is not continued"),
    ("mode: &a observe\nlanguage: *b\n", "2:11: the alias *b stands for nothing that is complete above it"),
    ("labels: &a {x: *a}\n", "1:16: the alias *a stands for nothing that is complete above it"),
    ("mode: !!python/name:os.system x\n", "1:7: a YAML tag ('!...') has no meaning in a configuration"),
    ("mode: observe\n---\nmode: enforce\n", "2:1: a second '---' document; a file holds one"),
    ("<<: {mode: observe}\n", "1:1: '<<' (merging of tables) is not supported; write the settings out"),
    ("? [a]\n: b\n", "1:3: expected the name of a setting, not a list"),
    ("labels: {a: 'x\x07'}\n", "1:15: the control character U+0007 can't stand in a configuration"),
    ("rules: " + "[" * 25 + "]" * 25 + "\n", "1:27: nested more than 20 levels deep"),
]


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def _each_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML's parser in C, and the one in Python for where libyaml is missing: the same answers."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML without libyaml")
    monkeypatch.setattr(document, "_LOADER", getattr(yaml, request.param))


@pytest.mark.usefixtures("_each_parser")
@pytest.mark.parametrize("text, expected", MISTAKES, ids=[expected[:60] for _, expected in MISTAKES])
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(f"gpuwatch.yaml:{expected}")


def test_all_problems_of_all_files_come_at_once_in_order(tmp_path: Path) -> None:
    main = """\
mode: enforse
langauge: en
interval: 1
workloads:
  - name: training
    units: [train@*.service, user.slice]
    gpu_memory_limit: much
    mode: on
    stop: {grace: soon}
budget: {destructive: many, inside: 10m}
rules:
  - name: hot
    metric: gpu.temperture
    above: hot
    severity: urgent
  - name: hot
    event: xid
    severity: warning
"""
    team = """\
protect: {units: [docker]}
workloads:
  - name: other
    units: ["*"]
    priority: -1
rules:
  - name: gpu-critical
    metric: gpu.shutdown_margin
    below: 2
    clear: {below: 1}
    severity: critical
  - {name: gpu-hot-absolut, enabled: false}
alerts:
  channels:
    - name: ops
      type: wecom
      key: 693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa
      severities: [warning, error]
      fallback: mail
"""
    found = problems(tmp_path, main, **{"10_broken": "rules: [\n", "20_team": team})
    assert [problem.split(": ")[0] + ": " + problem.split(": ")[1] for problem in found] == [
        "gpuwatch.yaml:1:7: mode",
        "gpuwatch.yaml:2:1: no setting 'langauge' here (did you mean language?)",
        "gpuwatch.yaml:3:11: interval",
        "gpuwatch.yaml:6:30: workloads[0].units[1]",
        "gpuwatch.yaml:7:23: workloads[0].gpu_memory_limit",
        "gpuwatch.yaml:8:11: workloads[0].mode",
        "gpuwatch.yaml:9:19: workloads[0].stop.grace",
        "gpuwatch.yaml:10:23: budget.destructive",
        "gpuwatch.yaml:10:29: budget",
        "gpuwatch.yaml:13:13: rules[0].metric",
        "gpuwatch.yaml:14:12: rules[0].above",
        "gpuwatch.yaml:15:15: rules[0].severity",
        "gpuwatch.yaml:16:5: rules[1]",
        "conf.d/10-broken.yaml:2:1: not valid YAML",
        "conf.d/20-team.yaml:1:19: protect.units[0]",
        "conf.d/20-team.yaml:4:13: workloads[0].units[0]",
        "conf.d/20-team.yaml:5:15: workloads[0].priority",
        "conf.d/20-team.yaml:10:20: rules[0].clear.below",
        "conf.d/20-team.yaml:17:12: alerts.channels[0].key",
        "conf.d/20-team.yaml:18:29: alerts.channels[0].severities[1]",
        "conf.d/20-team.yaml:19:7: alerts.channels[0]",
    ]


SECRETS = [
    "693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa",
    "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa",
    "SEC0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
]
PLACES = [
    CHANNEL + "      key: SECRET\n",
    CHANNEL + "      key: ['SECRET']\n",
    CHANNEL + "      key: {credential: 'SECRET'}\n",
    CHANNEL + "      key: {file: 'SECRET'}\n",
    CHANNEL + "      key: {url: 'SECRET'}\n",
    CHANNEL + "      webhook: SECRET\n",
    CHANNEL + "      'SECRET': 1\n",
    KEYED + "      url: 'SECRET'\n",
    KEYED + "      mention: ['SECRET ']\n",
    KEYED + "      type: 'SECRET'\n",
    "mode: SECRET\n",
    "workloads: 'SECRET'\n",
    "workloads: [{name: w, units: 'SECRET'}]\n",
    "rules: [{name: r, metric: 'SECRET', above: 'SECRET', severity: info}]\n",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_refused_and_never_repeated(tmp_path: Path, place: str, secret: str) -> None:
    found = "\n".join(problems(tmp_path, place.replace("SECRET", secret)))
    assert found
    assert secret not in found
    for part in ("693a91f6", "0ec2ffa5aaaa", "0123456789abcdef"):
        assert part not in found
