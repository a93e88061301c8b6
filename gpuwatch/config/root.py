"""The whole file: every group of settings in one table."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.config.amounts import Percent
from gpuwatch.config.channels import channels_table
from gpuwatch.config.classes import XID_CLASSES
from gpuwatch.config.kinds import Choice, Count, Duration, Labels, ListOf, Schema, Text
from gpuwatch.config.patterns import PATTERNS
from gpuwatch.config.rules import RULES
from gpuwatch.config.selector import GpuGlob
from gpuwatch.config.table import ChannelType, Section, Setting, later
from gpuwatch.config.workloads import PROTECT_UNITS, WORKLOADS
from gpuwatch.model.settings import Budget, Grace, Settings, Throttle

_ABSENT = {
    "containers": later("it acts on systemd units only"),
    "include": "is not needed: conf.d/*.yaml are read by themselves",
    "channels": "belongs below alerts: alerts: {channels: [...]}",
    "units": "belongs to a workload, or below protect",
}


def root_table(types: Mapping[str, ChannelType]) -> Section:
    """The table of gpuwatch.yaml and of every file in conf.d."""
    budget = Section(
        (
            Setting("destructive", Count(0, 1000), "At most so many stops within that time.", Budget.destructive),
            Setting("within", Duration(low_s=60, high_s=86400), "The time of the budget.", Budget.within_s),
            Setting("heat_per_gpu", Count(0, 100), "Stops for heat, per GPU, within that time.", Budget.heat_per_gpu),
        )
    )
    throttle = Section(
        (
            Setting(
                "gpus",
                ListOf(GpuGlob()),
                "GPUs by UUID that may be throttled although others than the workloads work on them too.",
                default=(),
                example='["GPU-3d9a7c10*"]',
            ),
            Setting(
                "step",
                Percent(1, 50),
                "So much of the power limit that a GPU had is taken away, and again while it still heats.",
                default=Throttle.step,
            ),
            Setting(
                "lowest",
                Percent(10, 95),
                "Never below so much of that limit, nor below what the card takes.",
                default=Throttle.lowest,
            ),
        ),
        absent={
            "clocks": later("only the power limit is lowered"),
            "enabled": "is not a setting: only a rule with do: [throttle] in its ladder throttles",
        },
    )
    grace = Section(
        (
            Setting("start", Duration(0, 3600), "Nothing is stopped so long after gpuwatch started.", Grace.start_s),
            Setting("boot", Duration(0, 3600), "Nor so long after the host started.", Grace.boot_s),
        )
    )
    keep = Section(
        (Setting("count", Count(10, 100_000), "So many bundles stay on disk.", default=Settings.evidence_count),),
        absent=dict.fromkeys(("age", "size", "free"), later("bundles are kept by count only")),
    )
    evidence = Section(
        (Setting("keep", keep, "What stays on disk."),),
        absent={
            "collect": later("a bundle holds the core evidence, which needs no deadline"),
            "archive": later("bundles are copied nowhere; a timer of your own can do it"),
        },
    )
    protect = Section((PROTECT_UNITS,), absent={"containers": later("it never acts on containers")})
    alerts = Section(
        (Setting("channels", channels_table(types), "How people are reached."),),
        absent={"repeat": later("an open incident is not told again")},
    )
    return Section(
        (
            Setting(
                "mode",
                Choice(("observe", "enforce")),
                "observe: decide and tell, touch nothing. enforce: do it.",
                default=Settings.mode.value,
            ),
            Setting("language", Choice(("en", "zh")), "Language of the messages.", default=Settings.language),
            Setting("interval", Duration(0.5, 10), "How often everything is sampled.", default=Settings.interval_s),
            Setting(
                "host",
                Text(r"[^\x00-\x1f\x7f<>`]{1,64}", "a short name without control characters, '<', '>' and '`'"),
                "How messages call this host. Left out: its host name.",
                example="gpu-07",
            ),
            Setting("labels", Labels(), "Free labels of this host.", example="{site: sh1, rack: A03, u: 12}"),
            Setting("workloads", WORKLOADS, "What may be acted on. Nothing else ever is."),
            Setting("protect", protect, "What is never touched."),
            Setting("budget", budget, "When gpuwatch stops acting and calls for people."),
            Setting("throttle", throttle, "How the power of a GPU is lowered."),
            Setting("grace", grace, "Time to settle before anything is stopped."),
            Setting("rules", RULES, "Rules of this host; one with the name of a default rule replaces it."),
            Setting("patterns", PATTERNS, "Lines of the journal that this site wants to know about."),
            Setting("xid_classes", XID_CLASSES, "Xids that are something else here than the table says."),
            Setting("evidence", evidence, "The evidence bundles."),
            Setting("alerts", alerts, "Who is told, and how."),
        ),
        absent=_ABSENT,
    )


def json_schema(types: Mapping[str, ChannelType]) -> Schema:
    """The JSON Schema of a configuration file, for editors and other tools."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuwatch configuration",
        "description": "gpuwatch.yaml and conf.d/*.yaml. `gpuwatch config check` checks more than a schema can.",
        **root_table(types).schema(),
    }
