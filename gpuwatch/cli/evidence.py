"""`gpuwatch evidence list|show|verify`: the bundles on disk; works with the daemon down."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from gpuwatch.cli import places
from gpuwatch.cli.output import paint, safe, show_json, size, table
from gpuwatch.evidence.manifest import BundleInfo, list_bundles, load_manifest, valid_id, verify
from gpuwatch.model.codec import encode
from gpuwatch.model.errors import EvidenceError

SCHEMA = 1


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "evidence", help="list, show, verify bundles on disk", epilog="example: gpuwatch evidence verify"
    )
    verbs = parser.add_subparsers(dest="what", required=True, metavar="list|show|verify")
    listing = verbs.add_parser("list", help="newest first", epilog="example: gpuwatch evidence list --json")
    show = verbs.add_parser(
        "show",
        help="what is in one, and why it was made",
        epilog="example: gpuwatch evidence show 20261130T054532Z-gpu-critical-3d9a7c10",
    )
    show.add_argument("bundle", metavar="ID", help="or its beginning, or a path")
    check = verbs.add_parser(
        "verify", help="compare files with the manifest", epilog="example: gpuwatch evidence verify /mnt/copy/2026..."
    )
    check.add_argument("bundle", metavar="ID|PATH", nargs="?", help="default: all of them")
    for verb in (listing, show, check):
        verb.add_argument("--json", action="store_true")
        places.add_state_dir(verb)


def run(args: argparse.Namespace) -> int:
    """Exit 1 when a bundle is missing or damaged."""
    root = os.path.join(args.state_dir, "evidence")
    if args.what == "list":
        return _list(root, args.json)
    if args.what == "show":
        return _show(_find(root, args.bundle), args.json)
    paths = [info.path for info in list_bundles(root)] if args.bundle is None else [_find(root, args.bundle)]
    return _verify(paths, args.json)


def _find(root: str, wanted: str) -> str:
    """The path of a bundle by id, by an unambiguous beginning, or by path. Raises EvidenceError."""
    if "/" in wanted:
        if not os.path.isdir(wanted):
            raise EvidenceError(f"{safe(wanted)} is no directory")
        return wanted
    if valid_id(wanted) and os.path.isdir(os.path.join(root, wanted)):
        return os.path.join(root, wanted)
    found = [info for info in list_bundles(root) if info.id.startswith(wanted)]
    if len(found) == 1:
        return found[0].path
    if found:
        raise EvidenceError(f"{len(found)} bundles begin with {safe(wanted)}: {found[-1].id} ... {found[0].id}")
    raise EvidenceError(f"no bundle {safe(wanted)} in {root}; see: gpuwatch evidence list")


def _list(root: str, as_json: bool) -> int:
    bundles = list_bundles(root)
    if as_json:
        show_json({"schema": SCHEMA, "directory": root, "bundles": [_summary(info) for info in bundles]})
    elif not bundles:
        sys.stdout.write(f"no bundles in {root}\n")
    else:
        rows = [_row(info) for info in bundles]
        sys.stdout.write(table(("BUNDLE", "TAKEN", "SIZE", "WHY"), rows, right=(2,)) + "\n")
    return 0


def _summary(info: BundleInfo) -> dict[str, Any]:
    manifest = info.manifest
    if manifest is None:
        return {"id": info.id, "path": info.path, "problem": info.problem}
    return {
        "id": info.id,
        "path": info.path,
        "host": manifest.host,
        "at_utc": manifest.at_utc,
        "at_local": manifest.at_local,
        "size_bytes": manifest.size_bytes,
        "trigger": dict(manifest.trigger),
    }


def _row(info: BundleInfo) -> list[str]:
    if info.manifest is None:
        return [info.id, "-", "-", f"damaged: {info.problem}"]
    manifest = info.manifest
    return [info.id, _local(manifest.at_local, manifest.zone), size(manifest.size_bytes), _why(dict(manifest.trigger))]


def _local(at_local: str, zone: str) -> str:
    """2026-11-30 13:45:32 CST, as it was on the host that wrote it."""
    return f"{at_local[:19].replace('T', ' ')} {zone}"


def _why(trigger: dict[str, Any]) -> str:
    known = [str(trigger[name]) for name in ("incident", "rule", "action", "target", "reason") if trigger.get(name)]
    return " · ".join(known) or "-"


def _show(path: str, as_json: bool) -> int:
    manifest = load_manifest(path)
    problems = verify(path)
    if as_json:
        show_json({"schema": SCHEMA, "path": path, "manifest": encode(manifest), "problems": list(problems)})
        return 1 if problems else 0
    lines = [
        f"Bundle {manifest.id}",
        f"{manifest.host}, {_local(manifest.at_local, manifest.zone)} ({manifest.at_utc}), boot {manifest.boot_id}",
        f"gpuwatch {manifest.version}",
    ]
    lines += [f"  {name}: {value}" for name, value in manifest.trigger.items() if value not in (None, "")]
    lines += [f"  {size(entry.size_bytes):>10}  {entry.name}" for entry in manifest.files]
    if manifest.removed:
        lines.append(f"{manifest.removed} value(s) that looked like secrets were not written")
    lines.append(f"Files: {path}")
    sys.stdout.write("\n".join(map(safe, lines)) + "\n" + _verdict(problems) + "\n")
    return 1 if problems else 0


def _verify(paths: list[str], as_json: bool) -> int:
    results = [(path, verify(path)) for path in paths]
    bad = sum(1 for _, problems in results if problems)
    if as_json:
        bundles = [{"path": path, "ok": not problems, "problems": list(problems)} for path, problems in results]
        show_json({"schema": SCHEMA, "ok": bad == 0, "bundles": bundles})
        return 1 if bad else 0
    for path, problems in results:
        name = safe(os.path.basename(os.path.abspath(path)))
        sys.stdout.write(f"{name}: {_verdict(problems)}\n")
    if len(results) != 1:
        sys.stdout.write(f"{len(results) - bad} ok, {bad} damaged\n")
    return 1 if bad else 0


def _verdict(problems: tuple[str, ...]) -> str:
    if not problems:
        return paint("ok: every file is as it was written", "green")
    return paint("DAMAGED", "red") + ": " + "; ".join(map(safe, problems))
