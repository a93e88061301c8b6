"""`gpuwatch simulate`: written stories, recorded history, two policies compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuwatch.cli.main import main
from gpuwatch.daemon.differences import Difference, differences, tell
from gpuwatch.daemon.told import Entry
from gpuwatch.model.reading import UNSUPPORTED
from gpuwatch.simulation import scenario as seen
from tests.fakes.recorder import Recorder
from tests.fakes.story import NEXT_BOOT, gpu, xid

STORY = """\
story: a hot card
host: {units: {train@a.service: {gpus: [0]}}}
timeline: [{at: 5s, gpu: 0, set: {temperature: 94.5}}]
expect:
  - {fires: gpu-critical, by: 15s}
  - {stops: train@a.service, by: 15s}
  - {holds: train@a.service}
"""
POLICY = """\
mode: enforce
workloads: [{name: training, units: ["train@*.service"]}]
"""
RULE = """\
rules:
  - {name: warm, metric: gpu.temperature, above: %s, for: %s, severity: warning, ladder: [{do: [stop]}]}
  - {name: gpu-critical, enabled: false}
  - {name: gpu-hot, enabled: false}
"""
EVER = ("--since", "2026-01-01", "--until", "2027-12-31")


def story(folder: Path, text: str = STORY) -> str:
    path = folder / "story.yaml"
    path.write_text(text)
    return str(path)


def policy(folder: Path, name: str, more: str = "") -> str:
    path = folder / name
    path.write_text(POLICY + more)
    path.chmod(0o644)
    return str(path)


def told(capsys: Any, *arguments: str) -> tuple[int, Any]:
    """Exit code and the JSON that was printed."""
    code = main(["simulate", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


# Stories


def test_a_story_that_goes_as_expected(tmp_path: Path, capsys: Any) -> None:
    assert main(["simulate", story(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a hot card\n") and out.endswith("  as expected\n")
    assert "gpu-critical fires on GPU 0: degrees left to shutdown 0.5 C, limit 2 C" in out
    assert "train@a.service is asked to stop on GPU 0 for gpu-critical" in out


def test_a_story_that_goes_otherwise_says_which_expectation_failed(tmp_path: Path, capsys: Any) -> None:
    path = story(tmp_path, STORY.replace("by: 15s", "by: 6s"))
    assert main(["simulate", path, "--quiet"]) == 1
    out = capsys.readouterr().out
    assert f"NOT as expected: {path}:5: expected that gpu-critical fires within 0s to 6s; it was at 10s" in out


def test_a_story_with_mistakes_is_a_bad_file(tmp_path: Path, capsys: Any) -> None:
    path = story(tmp_path, STORY.replace("fires: gpu-critical", "fires: gpu-critcal"))
    assert main(["simulate", path, str(tmp_path / "missing.yaml")]) == 78
    err = capsys.readouterr().err
    assert f"{path}:5:13: expect[0].fires: no rule 'gpu-critcal' (did you mean gpu-critical?)" in err
    assert "missing.yaml:1:1: can't be read: No such file" in err


def test_a_story_played_to_another_policy(tmp_path: Path, capsys: Any) -> None:
    rules = policy(tmp_path, "new.yaml", "rules: [{name: gpu-critical, enabled: false}]\n")
    code, said = told(capsys, story(tmp_path), "--policy", rules)
    assert code == 1 and said["schema"] == 1
    (only,) = said["stories"]
    assert not only["as_expected"] and [each["what"] for each in only["entries"]].count("stops") == 0


def test_the_json_of_a_story_holds_moments_and_words(tmp_path: Path, capsys: Any) -> None:
    _, said = told(capsys, story(tmp_path))
    first = said["stories"][0]["entries"][0]
    assert (first["at_s"], first["what"], first["rule"], first["on"]) == (10.0, "fires", "gpu-critical", "GPU 0")
    assert first["facts"]["metric"] == "gpu.shutdown_margin"


def test_the_schema_takes_every_story_of_the_tests(capsys: Any) -> None:
    assert main(["simulate", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    stories = sorted((Path(__file__).parents[1] / "scenarios" / "stories").glob("**/*.yaml"))
    assert stories
    validator = jsonschema.Draft202012Validator(schema)
    for path in stories:
        validator.validate(_as_of_yaml_1_2(yaml.safe_load(path.read_text())))


def _as_of_yaml_1_2(data: Any) -> Any:
    """`on` is a name there."""
    if isinstance(data, dict):
        return {"on" if key is True else key: _as_of_yaml_1_2(each) for key, each in data.items()}
    return [_as_of_yaml_1_2(each) for each in data] if isinstance(data, list) else data


@pytest.mark.parametrize("option", [("--since", "-1h"), ("--until", "13:00"), ("--against", "x.yaml")])
def test_a_story_has_no_history(tmp_path: Path, capsys: Any, option: tuple[str, str]) -> None:
    assert main(["simulate", story(tmp_path), *option]) == 2
    assert "are about history" in capsys.readouterr().err


# History


def hot(recorder: Recorder, celsius: float, seconds: int, **readings: Any) -> None:
    recorder.run(seconds, gpu(0, celsius, **readings), gpu(1, 61.0))


def recorded(folder: Path) -> Recorder:
    """An hour with a minute in which GPU 0 is hot."""
    recorder = Recorder(folder)
    recorder.run(1200, step_s=5)
    hot(recorder, 94.5, 60)
    recorder.run(1200, step_s=5)
    recorder.history.close()
    return recorder


def entries(said: Any, *wanted: str) -> list[tuple[str, str, str]]:
    return [(each["what"], each["name"], each["on"]) for each in said["entries"] if each["what"] in wanted]


def test_what_the_rules_would_have_done_in_a_recorded_time(tmp_path: Path, capsys: Any) -> None:
    recorded(tmp_path)
    code, said = told(capsys, "--policy", policy(tmp_path, "new.yaml"), *EVER, "--state-dir", str(tmp_path))
    assert code == 0 and said["moments"] > 450
    assert entries(said, "fires")[:1] == [("fires", "gpu-critical", "GPU 0")]
    assert ("would", "stop whoever was there", "GPU 0") in entries(said, "would")
    assert any("worst of each 5 s" in each for each in said["caveats"])


def test_nothing_is_written_to_what_is_read(tmp_path: Path, capsys: Any) -> None:
    recorded(tmp_path)
    rules = policy(tmp_path, "new.yaml")
    before = {each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in tmp_path.iterdir()}
    told(capsys, "--policy", rules, *EVER, "--state-dir", str(tmp_path))
    after = {each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in tmp_path.iterdir()}
    assert {name: each for name, each in after.items() if name in before and not name.endswith(("-shm", "-wal"))} == {
        name: each for name, each in before.items() if not name.endswith(("-shm", "-wal"))
    }


def test_a_policy_without_workloads_would_have_stopped_nobody(tmp_path: Path, capsys: Any) -> None:
    recorded(tmp_path)
    rules = tmp_path / "none.yaml"
    rules.write_text("mode: enforce\n")
    _, said = told(capsys, "--policy", str(rules), *EVER, "--state-dir", str(tmp_path))
    assert entries(said, "fires") and not [each for each in entries(said, "would") if each[1].startswith("stop")]


def test_two_policies_compared(tmp_path: Path, capsys: Any) -> None:
    recorded(tmp_path)
    new = policy(tmp_path, "new.yaml", RULE % (90, "30s"))
    old = policy(tmp_path, "old.yaml", RULE % (90, "10s"))
    where = (*EVER, "--state-dir", str(tmp_path))
    _, said = told(capsys, "--policy", new, "--against", old, *where)
    found = [(each["kind"], each["what"], each["by_s"]) for each in said["differences"]]
    assert ("later", "fires", 20.0) in found and not any(kind in ("added", "removed") for kind, *_ in found)
    other = policy(tmp_path, "other.yaml", RULE % (95, "10s"))
    _, said = told(capsys, "--policy", other, "--against", old, *where)
    assert {each["kind"] for each in said["differences"]} == {"removed"}
    main(["simulate", "--policy", new, "--against", new, *where])
    assert "no difference" in capsys.readouterr().out


def test_cards_that_never_told_margins_are_judged_by_degrees(tmp_path: Path, capsys: Any) -> None:
    recorder = Recorder(tmp_path)
    offers_none: dict[str, Any] = {"slowdown_margin": UNSUPPORTED, "shutdown_margin": UNSUPPORTED}
    for celsius, seconds in ((60.0, 300), (97.0, 60), (60.0, 300)):
        recorder.run(seconds, gpu(0, celsius, **offers_none))
    recorder.history.close()
    _, said = told(capsys, "--policy", policy(tmp_path, "new.yaml"), *EVER, "--state-dir", str(tmp_path))
    assert ("fires", "gpu-critical-absolute", "GPU 0") in entries(said, "fires")


def test_recorded_events_and_a_silent_driver_are_judged(tmp_path: Path, capsys: Any) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.cycle(events=[xid(79, recorder.clock.now())])
    recorder.run(60)
    recorder.silent(40)
    recorder.run(60)
    recorder.history.close()
    _, said = told(capsys, "--policy", policy(tmp_path, "new.yaml"), *EVER, "--state-dir", str(tmp_path))
    fired = [name for _, name, _ in entries(said, "fires")]
    assert {"xid-host-restart", "driver-silent"} <= set(fired) and "gpu-lost" not in fired


def test_a_restart_of_the_host_in_between_begins_anew(tmp_path: Path, capsys: Any) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(20)
    hot(recorder, 94.5, 4)
    recorder.history.close()
    recorder.clock.reboot(NEXT_BOOT)
    recorder.start()
    hot(recorder, 94.5, 1)
    recorder.run(60)
    recorder.history.close()
    _, said = told(capsys, "--policy", policy(tmp_path, "new.yaml"), *EVER, "--state-dir", str(tmp_path))
    assert not entries(said, "fires", "would")


def test_a_time_of_which_nothing_is_recorded(tmp_path: Path, capsys: Any) -> None:
    recorded(tmp_path)
    where = ("--since", "2020-01-01", "--until", "2020-01-02", "--state-dir", str(tmp_path))
    assert main(["simulate", "--policy", policy(tmp_path, "new.yaml"), *where]) == 0
    assert "nothing was recorded in that time" in capsys.readouterr().out


def test_no_history_is_a_failure_with_a_reason(tmp_path: Path, capsys: Any) -> None:
    assert main(["simulate", "--policy", policy(tmp_path, "new.yaml"), "--state-dir", str(tmp_path)]) == 1
    assert "history.db: nothing there" in capsys.readouterr().err


def test_a_policy_with_mistakes_is_a_bad_file(tmp_path: Path, capsys: Any) -> None:
    path = policy(tmp_path, "bad.yaml", "mdoe: x\n")
    assert main(["simulate", "--policy", path, "--state-dir", str(tmp_path)]) == 78
    assert f"{path}:3:1:" in capsys.readouterr().err


# Differences


def entry(at_s: float, name: str = "hot", verb: str = seen.FIRES, on: str = "GPU 0") -> Entry:
    return Entry(at_s, verb, name, on, name)


@pytest.mark.parametrize(
    "old, new, found",
    [
        ([entry(10)], [entry(10.5)], []),
        ([entry(10)], [entry(40)], [("later", 30)]),
        ([entry(40)], [entry(10)], [("earlier", 30)]),
        ([entry(10)], [], [("removed", 0)]),
        ([], [entry(10)], [("added", 0)]),
        ([entry(10)], [entry(2000)], [("removed", 0), ("added", 0)]),
        ([entry(10)], [entry(10, on="GPU 1")], [("added", 0), ("removed", 0)]),
        ([entry(10), entry(300)], [entry(305)], [("later", 5), ("removed", 0)][::-1]),
        ([entry(10, verb=seen.CLEARS)], [], []),
    ],
)
def test_what_differs(old: list[Entry], new: list[Entry], found: list[tuple[str, float]]) -> None:
    assert [(each.kind, each.by_s) for each in differences(old, new)] == found


def test_a_difference_in_words() -> None:
    assert Difference("later", entry(10), 30).words == "hot fires on GPU 0, by 30 s"


def test_the_unknown_owner_has_a_plain_name() -> None:
    (said,) = tell([Entry(1.0, seen.WOULD, "stop whoever-was-there@gpu3.service", "GPU 3", "hot")])
    assert said.name == "stop whoever was there"


def test_a_time_without_a_sign_is_ago(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text("mode: observe\n")
    given = ["simulate", "--policy", str(tmp_path / "new.yaml"), "--state-dir", str(tmp_path)]
    assert main([*given, "--since", "7d"]) == main([*given, "--since", "-7d"])
