"""Which file system a path lies on, under which name people know it, and how much room is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.model.reading import UNSUPPORTED, value
from gpuwatch.system.mounts import METRICS, Mounts, parse_mountinfo, space_readings

HOST = rb"""1 0 0:2 / / rw - rootfs rootfs rw
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:22 / /sys rw shared:2 - sysfs sysfs rw
24 22 259:1 / /var rw shared:3 - xfs /dev/nvme0n1p1 rw,attr2
25 24 0:40 / /var/lib/docker/overlay2/abc/merged rw - overlay overlay rw,lowerdir=/a
26 22 0:50 / /srv/train\040data rw - nfs4 store:/export rw,vers=4.2
27 22 0:60 / /mnt/cache rw - autofs systemd-1 rw,fd=53
28 22 259:2 / /data ro,relatime - ext4 /dev/nvme1n1 rw
29 28 259:3 / /data/old rw - ext4 /dev/nvme2n1 rw
30 28 259:4 / /data rw - ext4 /dev/nvme3n1 ro,errors=remount-ro
31 24 259:1 /lib/gpuwatch /var/lib/gpuwatch rw shared:3 - xfs /dev/nvme0n1p1 rw,attr2
broken line
40 22 x - y
"""


@pytest.mark.parametrize(
    "path, point, kind",
    [
        ("/", "/", "ext4"),
        ("/home/x", "/", "ext4"),
        ("/var", "/var", "xfs"),
        ("/variable", "/", "ext4"),
        ("/var/lib/x", "/var", "xfs"),
        ("/var/lib/gpuwatch/state.db", "/var/lib/gpuwatch", "xfs"),
        ("/srv/train data/run1", "/srv/train data", "nfs4"),
        ("/data/new", "/data", "ext4"),
        ("/data/old/x", "/data", "ext4"),  # hidden below a later mount on /data
    ],
)
def test_where_a_path_lies(path: str, point: str, kind: str) -> None:
    mount = parse_mountinfo(HOST).at(path)
    assert mount is not None
    assert (mount.point, mount.kind) == (point, kind)


def test_the_newest_of_several_mounts_on_one_point_counts() -> None:
    mount = parse_mountinfo(HOST).at("/data")
    assert mount is not None and mount.source == "/dev/nvme3n1"


@pytest.mark.parametrize(
    "path, name", [("/var/lib/gpuwatch/x", "/var"), ("/data/x", "/data"), ("/srv/train data", "/srv/train data")]
)
def test_a_file_system_is_named_by_the_place_where_all_of_it_is(path: str, name: str) -> None:
    table = parse_mountinfo(HOST)
    mount = table.at(path)
    assert mount is not None
    assert table.named(mount).point == name


def test_a_hidden_place_is_no_name() -> None:
    """/data of 259:2 lies below a later mount: what people see of that file system is the bind mount."""
    table = parse_mountinfo(HOST + b"50 22 259:2 /set1 /mnt/set1 rw - ext4 /dev/nvme1n1 rw\n")
    mount = table.at("/mnt/set1/x")
    assert mount is not None
    assert table.named(mount).point == "/mnt/set1"


def test_only_a_part_may_be_visible() -> None:
    table = parse_mountinfo(b"22 1 254:0 /containers/a / rw - ext4 /dev/vda rw\n")
    mount = table.at("/x")
    assert mount is not None
    assert table.named(mount).point == "/"


def test_a_mount_may_be_read_only_where_its_file_system_is_not() -> None:
    """As in a sandbox, where nearly everything is."""
    table = parse_mountinfo(b"1 0 254:0 / / ro,relatime - ext4 /dev/vda rw\n2 1 254:1 / /a rw - ext4 /dev/vdb ro\n")
    found = [table.at("/"), table.at("/a")]
    assert [each.read_only for each in found if each is not None] == [False, True]


def test_a_loop_in_the_table_ends() -> None:
    table = parse_mountinfo(b"1 9 1:1 / / rw - ext4 a rw\n2 1 1:2 / /a rw - ext4 b rw\n2 2 1:3 / /a rw - ext4 c rw\n")
    assert table.at("/a/b") is not None


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe - \n", b"5 4 1:1 / /a rw - ext4 b rw\n"])
def test_a_table_without_a_root(content: bytes) -> None:
    assert parse_mountinfo(content).at("/a") is None


def mounts(tmp_path: Path, content: str) -> Mounts:
    (tmp_path / "mountinfo").write_text(content)
    return Mounts(str(tmp_path / "mountinfo"))


def test_space_as_df_counts_it(tmp_path: Path) -> None:
    found = mounts(tmp_path, "1 0 254:0 / / rw - ext4 /dev/vda rw\n").space(str(tmp_path / "later" / "on"))
    stat = os.statvfs("/")
    used = stat.f_blocks - stat.f_bfree
    assert (found.mount, found.kind, found.source, found.device) == ("/", "ext4", "/dev/vda", "254:0")
    assert found.readings["host.disk_size"] == value(stat.f_blocks * stat.f_frsize)
    assert found.readings["host.disk_free_ratio"].value == pytest.approx(
        stat.f_bavail / (used + stat.f_bavail), abs=0.01
    )
    assert found.readings["host.disk_read_only"] == value(0)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    table = f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 9:9 / {tmp_path}/real rw - xfs /dev/b ro\n"
    here = mounts(tmp_path, table)
    assert here.of([str(tmp_path / "link")])[str(tmp_path / "link")].mount == "/"  # by its letters
    found = here.space(str(tmp_path / "link" / "x"))
    assert found.mount == str(tmp_path / "real")
    assert found.readings["host.disk_read_only"] == value(1)


@pytest.mark.parametrize("kind", ["squashfs", "iso9660", "autofs"])
def test_what_is_full_by_nature_is_not_judged(tmp_path: Path, kind: str) -> None:
    found = mounts(tmp_path, f"1 0 7:0 / / ro - {kind} /dev/loop0 ro\n").space("/")
    assert found.readings == dict.fromkeys(METRICS, UNSUPPORTED)


def test_a_file_system_that_is_gone(tmp_path: Path) -> None:
    table = f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 9:9 / {tmp_path}/gone rw - xfs /dev/b rw\n"
    found = mounts(tmp_path, table).space(f"{tmp_path}/gone/x")
    assert found.kind == "xfs"
    assert all(reading.failed for reading in found.readings.values())
    assert "No such file" in (found.readings["host.disk_free"].problem or "")


def test_no_table(tmp_path: Path) -> None:
    here = Mounts(str(tmp_path / "none"))
    assert here.of(["/"]) == {}
    assert here.space("/").readings["host.disk_free"].failed


def test_file_systems_without_a_number_of_inodes() -> None:
    def stat(**figures: int) -> os.statvfs_result:
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail", "flag", "namemax")
        return os.statvfs_result([figures.get(name, 0) for name in names])

    btrfs = space_readings(stat(frsize=4096, blocks=100, bfree=50, bavail=40), False)
    assert btrfs["host.inodes_free_ratio"] == UNSUPPORTED
    assert btrfs["host.disk_free_ratio"] == value(40 / 90)
    assert btrfs["host.disk_free"] == value(40 * 4096)
    empty = space_readings(stat(frsize=4096), False)
    assert empty["host.disk_free_ratio"] == UNSUPPORTED
    odd = space_readings(stat(frsize=1, blocks=10, bfree=30, bavail=30, files=5, ffree=1, favail=1), True)
    assert odd["host.disk_free_ratio"].failed
    assert odd["host.inodes_free_ratio"] == value(0.2)
    full = space_readings(stat(frsize=1, blocks=100, bfree=5, bavail=0), False)
    assert full["host.disk_free_ratio"] == value(0)
