"""N10: which GPUs there are against which there should be, and what names a card that NVML can't ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.model.gpu import GpuIdentity, GpuSample, ProcessList
from gpuwatch.model.reading import UNSUPPORTED, failed, value
from gpuwatch.system.nvml.capabilities import Capabilities
from gpuwatch.system.nvml.information import Listed, read_information
from gpuwatch.system.nvml.inventory import Inventory

LOST = "the driver can no longer reach it"


def sample(index: int, name: int = -1, lost: bool = False) -> GpuSample:
    name = index if name < 0 else name
    reason, readings = (LOST, {}) if lost else (None, {"gpu.temperature": value(40), "gpu.fan": UNSUPPORTED})
    return GpuSample(f"GPU-{name}", index, "H100", f"0000:0{name}:00.0", readings, lost=reason)


def nameless(index: int) -> GpuSample:
    return GpuSample(f"unidentified-{index}", index, "unknown", "", lost=LOST)


def remembered(*names: int) -> list[GpuIdentity]:
    return [GpuIdentity(f"GPU-{name}", name, "H100", f"0000:0{name}:00.0") for name in names]


def listed(*names: int, without_uuid: bool = False) -> list[Listed]:
    return [Listed(f"0000:0{name}:00.0", "" if without_uuid else f"GPU-{name}", "NVIDIA H100") for name in names]


def uuids(samples: tuple[GpuSample, ...]) -> list[str]:
    return [each.uuid for each in samples]


def test_what_is_found_first_is_what_belongs_here() -> None:
    inventory = Inventory()
    inventory.complete([sample(0), sample(1)], [])
    assert (inventory.new, inventory.missing) == ((), ())
    inventory.complete([sample(0), sample(1), sample(2)], [])
    assert inventory.new == ("GPU-2",)


def test_a_remembered_gpu_that_is_not_listed_is_lost_also_after_a_restart() -> None:
    inventory = Inventory()
    inventory.expect(remembered(0, 1, 2))
    # The driver numbers what is left anew.
    samples = inventory.complete([sample(0), sample(1, name=2)], [])
    assert sorted(uuids(samples)) == ["GPU-0", "GPU-1", "GPU-2"]
    (lost,) = [each for each in samples if each.lost]
    assert (lost.uuid, lost.pci, lost.readings) == ("GPU-1", "0000:01:00.0", {})
    assert "not listed" in (lost.lost or "")
    assert (inventory.missing, inventory.new) == (("GPU-1",), ())
    inventory.complete([sample(0), sample(1), sample(2)], [])
    assert inventory.missing == ()


def test_a_card_in_place_of_another_is_both_news() -> None:
    inventory = Inventory()
    inventory.expect(remembered(0, 1))
    other = GpuSample("GPU-x", 1, "H100", "0000:01:00.0", {"gpu.temperature": value(40)})
    samples = inventory.complete([sample(0), other], [])
    assert (inventory.missing, inventory.new) == (("GPU-1",), ("GPU-x",))
    assert [each.lost for each in samples if each.uuid == "GPU-1"] == ["another card is in its place (GPU-x)"]


def test_accepted_and_forgotten() -> None:
    inventory = Inventory()
    inventory.expect(remembered(0, 1))
    other = GpuSample("GPU-x", 1, "H100", "0000:01:00.0", {"gpu.temperature": value(40)})
    inventory.complete([sample(0), other], [])
    inventory.expect([*remembered(0), GpuIdentity("GPU-x", 1, "H100", "0000:01:00.0")])
    assert (inventory.new, inventory.missing) == ((), ())
    assert uuids(inventory.complete([sample(0), other], [])) == ["GPU-0", "GPU-x"]


class TestWithoutAName:
    def test_the_kernel_module_names_the_only_one_left(self) -> None:
        inventory = Inventory()
        inventory.listed_by_kernel(listed(0, 1, 2))
        samples = inventory.complete([sample(0), nameless(1), sample(2)], [])
        assert uuids(samples) == ["GPU-0", "GPU-1", "GPU-2"]
        assert (samples[1].pci, samples[1].lost) == ("0000:01:00.0", LOST)
        assert inventory.missing == ()

    def test_several_in_the_order_of_their_addresses(self) -> None:
        inventory = Inventory()
        inventory.listed_by_kernel(listed(0, 1, 2))
        assert uuids(inventory.complete([nameless(2), sample(0), nameless(1)], [])) == ["GPU-0", "GPU-1", "GPU-2"]

    def test_no_guess_where_there_is_a_choice(self) -> None:
        inventory = Inventory()
        inventory.listed_by_kernel(listed(0, 1, 2, 3))
        assert uuids(inventory.complete([sample(0), nameless(1), sample(2)], []))[1] == "unidentified-1"

    def test_where_it_has_no_uuid_the_address_leads_to_what_is_remembered(self) -> None:
        inventory = Inventory()
        inventory.expect(remembered(0, 1))
        inventory.listed_by_kernel(listed(0, 1, without_uuid=True))
        samples = inventory.complete([sample(0), nameless(1)], [])
        assert uuids(samples) == ["GPU-0", "GPU-1"]

    def test_at_least_the_address(self) -> None:
        inventory = Inventory()
        inventory.listed_by_kernel(listed(0, 1, without_uuid=True))
        lost = inventory.complete([sample(0), nameless(1)], [])[1]
        assert (lost.uuid, lost.pci) == ("unidentified-1", "0000:01:00.0")

    def test_by_the_index_that_is_remembered(self) -> None:
        inventory = Inventory()
        inventory.expect(remembered(0, 1))
        samples = inventory.complete([sample(0), nameless(1)], [])
        assert (uuids(samples), samples[1].lost) == (["GPU-0", "GPU-1"], LOST)


def test_a_gpu_that_does_not_answer_keeps_its_name_and_fails() -> None:
    inventory = Inventory()
    inventory.complete([sample(0), sample(1)], [])
    silent = inventory.complete([sample(0)], [1])[1]
    assert (silent.uuid, silent.lost) == ("GPU-1", None)
    assert silent.readings["gpu.temperature"].failed
    assert "gpu.fan" not in silent.readings
    assert inventory.missing == ()


INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 183
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t 0
GPU Excluded:\t No
"""


def test_the_kernel_module_s_list(tmp_path: Path) -> None:
    for bus, uuid in (("5e", "GPU-????????-????-????-????-????????????"), ("18", "GPU-3d9a7c10-5b1e"), ("2a", None)):
        folder = tmp_path / "gpus" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        if uuid is not None:
            (folder / "information").write_text(INFORMATION.format(uuid=uuid, bus=bus))
    assert read_information(str(tmp_path)) == (
        Listed("0000:18:00.0", "GPU-3d9a7c10-5b1e", "NVIDIA H100 80GB HBM3"),
        Listed("0000:2a:00.0", "", "unknown"),
        Listed("0000:5e:00.0", "", "NVIDIA H100 80GB HBM3"),
    )


@pytest.mark.parametrize("content", [b"", b"\xff\xfe:::\n\0", b"GPU UUID"])
def test_a_list_that_is_odd(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "gpus" / "0000:18:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_bytes(content)
    assert [each.uuid for each in read_information(str(tmp_path))] == [""]
    assert read_information(str(tmp_path / "nowhere")) == ()


class TestCapabilities:
    def test_the_newest_definite_answer_counts(self) -> None:
        capabilities = Capabilities()
        words = []
        for reading in (failed("x"), value(1), failed("x"), UNSUPPORTED, failed("x"), value(2)):
            capabilities.note(GpuSample("GPU-0", 0, "H100", "", {"gpu.utilisation": reading}))
            words.append(capabilities.table["GPU-0"]["gpu.utilisation"])
        assert words == ["failed", "supported", "supported", "unsupported", "unsupported", "supported"]

    @pytest.mark.parametrize(
        "problem, word", [(None, "supported"), ("unsupported", "unsupported"), ("NVML error 999", "failed")]
    )
    def test_lists_of_processes(self, problem: str, word: str) -> None:
        capabilities = Capabilities()
        capabilities.note(GpuSample("GPU-0", 0, "H100", "", processes=ProcessList(problem=problem)))
        assert capabilities.table["GPU-0"] == {"processes": word}

    def test_a_table_that_was_given_out_does_not_change(self) -> None:
        capabilities = Capabilities()
        capabilities.note_slow("GPU-0", {"gpu.mig_mode": value(0)})
        given = capabilities.table
        capabilities.note_slow("GPU-0", {"gpu.mig_mode": UNSUPPORTED})
        assert given == {"GPU-0": {"gpu.mig_mode": "supported", "mig": "supported"}}
