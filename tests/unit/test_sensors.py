"""hwmon by name and thermal zones by type: keys that stay, units, limits, and sensors that lie."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.model.host import Sensor
from gpuwatch.model.reading import UNSUPPORTED, value
from gpuwatch.system.sensors import Sensors
from tests.fakes.host_tree import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


@pytest.fixture
def sensors(tree: HostTree) -> Sensors:
    return Sensors(tree.sys)


def read_all(sensors: Sensors) -> dict[str, Sensor]:
    return {each.key: each for chip in sensors.chips() for each in sensors.read(chip)}


def celsius(sensor: Sensor) -> Optional[float]:
    return sensor.readings["host.sensor_temperature"].value


def test_a_socket(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(
        1, "coretemp", "coretemp.0",
        temp1_input="61000", temp1_label="Package id 0", temp1_crit="100000", temp1_max="82000",
        temp2_input="58000", temp2_label="Core 0",
    )  # fmt: skip
    found = read_all(sensors)
    assert list(found) == ["coretemp@coretemp.0/Package id 0", "coretemp@coretemp.0/Core 0"]
    package = found["coretemp@coretemp.0/Package id 0"]
    assert (package.chip, package.label) == ("coretemp", "Package id 0")
    assert package.readings == {"host.sensor_temperature": value(61), "host.sensor_margin": value(39)}
    assert found["coretemp@coretemp.0/Core 0"].readings["host.sensor_margin"] == UNSUPPORTED


def test_fans_and_power(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(0, "nct6779", "nct6775.656", fan1_input="0", fan2_input="8400", fan2_label="GPU tray", in0_input="1200")
    tree.hwmon(1, "power_meter", "ACPI000D:00", power1_average="780000000", power1_input="1")
    found = read_all(sensors)
    assert found["nct6779@nct6775.656/fan1"].readings == {"host.fan_speed": value(0)}
    assert found["nct6779@nct6775.656/GPU tray"].readings == {"host.fan_speed": value(8400)}
    assert found["power_meter@ACPI000D:00/power1"].readings == {"host.sensor_power": value(780)}
    assert len(found) == 3


def test_keys_stay_when_the_numbers_change(tree: HostTree, sensors: Sensors, tmp_path: Path) -> None:
    tree.hwmon(0, "coretemp", "coretemp.0", temp1_input="1000")
    tree.hwmon(1, "coretemp", "coretemp.1", temp1_input="2000")
    before = {key: celsius(each) for key, each in read_all(sensors).items()}
    other = HostTree(tmp_path / "other")
    other.hwmon(4, "coretemp", "coretemp.0", temp1_input="1000")
    other.hwmon(2, "coretemp", "coretemp.1", temp1_input="2000")
    assert {key: celsius(each) for key, each in read_all(Sensors(other.sys)).items()} == before
    assert before == {"coretemp@coretemp.0/temp1": 1, "coretemp@coretemp.1/temp1": 2}


def test_a_chip_that_is_replaced_is_looked_at_anew(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(0, "nvme", "nvme0", temp1_input="40000", temp1_crit="85000", temp1_label="Composite")
    assert read_all(sensors)["nvme@nvme0/Composite"].readings["host.sensor_margin"] == value(45)
    here = tree.root / "sys/class/hwmon/hwmon0"
    here.rename(tree.root / "gone")
    tree.hwmon(0, "nvme", "nvme0", temp1_input="30000", temp1_crit="70000")
    found = read_all(sensors)
    assert list(found) == ["nvme@nvme0/temp1"]
    assert found["nvme@nvme0/temp1"].readings["host.sensor_margin"] == value(40)
    here.rename(tree.root / "gone too")
    assert sensors.read("nvme@nvme0") == ()
    assert sensors.chips() == ()


def test_names_that_occur_twice(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(0, "jc42", temp1_input="30000")
    tree.hwmon(1, "jc42", temp1_input="31000")
    tree.zone(0, "x86_pkg_temp", temp="50000")
    tree.zone(1, "x86_pkg_temp", temp="51000")
    tree.zone(10, "acpitz", temp="27800")
    tree.zone(2, "acpitz", temp="16800")
    tree.hwmon(3, "dimm", temp1_input="1000", temp1_label="A", temp2_input="2000", temp2_label="A")
    assert {key: celsius(each) for key, each in read_all(sensors).items()} == {
        "jc42/temp1": 30,
        "jc42#2/temp1": 31,
        "dimm/A": 1,
        "dimm/A#2": 2,
        "thermal:x86_pkg_temp": 50,
        "thermal:x86_pkg_temp#2": 51,
        "thermal:acpitz": 16.8,
        "thermal:acpitz#2": 27.8,
    }


def test_a_zone_has_its_critical_trip_point(tree: HostTree, sensors: Sensors) -> None:
    tree.zone(
        0, "acpitz", temp="60000", mode="enabled",
        trip_point_0_type="passive", trip_point_0_temp="70000",
        trip_point_1_type="critical", trip_point_1_temp="105000",
    )  # fmt: skip
    found = read_all(sensors)["thermal:acpitz"]
    assert (found.chip, found.label) == ("acpitz", "")
    assert found.readings == {"host.sensor_temperature": value(60), "host.sensor_margin": value(45)}


def test_what_is_left_out(tree: HostTree, sensors: Sensors) -> None:
    tree.zone(0, "acpitz", temp="27800")
    tree.zone(1, "off", temp="0", mode="disabled")
    tree.hwmon(0, "acpitz", "thermal_zone0", temp1_input="27800")  # the same zone once more
    tree.hwmon(1, "nvidia", "0000:c6:00.0", temp1_input="60000")  # nothing of ours goes to a GPU's driver
    tree.hwmon(2, "", temp1_input="1000")
    tree.put("sys/class/hwmon/other/name", "x\n")
    assert list(read_all(sensors)) == ["thermal:acpitz"]


@pytest.mark.parametrize("text", ["-128000", "255000", "cold", "-273000"])
def test_sensors_that_lie(tree: HostTree, sensors: Sensors, text: str) -> None:
    tree.hwmon(0, "nct6779", temp1_input=text, temp1_crit="80000")
    readings = read_all(sensors)["nct6779/temp1"].readings
    assert readings["host.sensor_temperature"].failed
    assert readings["host.sensor_margin"].failed


@pytest.mark.parametrize("critical", ["0", "-273150", "65261000", "127000000", "x"])
def test_limits_that_nobody_set(tree: HostTree, sensors: Sensors, critical: str) -> None:
    tree.hwmon(0, "nct6779", temp1_input="40000", temp1_crit=critical)
    assert read_all(sensors)["nct6779/temp1"].readings["host.sensor_margin"] == UNSUPPORTED


def test_a_sensor_that_reports_a_fault(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(0, "tmp401", temp1_input="40000", temp1_fault="1", temp2_input="41000", temp2_fault="0")
    found = read_all(sensors)
    assert found["tmp401/temp1"].readings["host.sensor_temperature"].failed
    assert celsius(found["tmp401/temp2"]) == 41


def test_an_input_that_is_gone_or_broken(tree: HostTree, sensors: Sensors) -> None:
    tree.hwmon(0, "drivetemp", temp1_input="40000", temp2_input="41000")
    assert len(read_all(sensors)) == 2
    tree.remove("sys/class/hwmon/hwmon0/temp1_input")
    tree.remove("sys/class/hwmon/hwmon0/temp2_input")
    (tree.root / "sys/class/hwmon/hwmon0/temp2_input").mkdir()  # any other error
    found = read_all(sensors)
    assert found["drivetemp/temp1"].readings["host.sensor_temperature"] == UNSUPPORTED
    assert found["drivetemp/temp2"].readings["host.sensor_temperature"].failed


def test_a_host_without_sensors(tmp_path: Path) -> None:
    assert Sensors(str(tmp_path)).chips() == ()
