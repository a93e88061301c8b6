"""What history.db holds: which metrics have a column, the statements that make and fill the tables.

This is the one place for its columns. A new metric takes: a Column at the end of its tuple, the same at the end
of its INSERT, and one more entry in MIGRATIONS with the `ALTER TABLE ... ADD COLUMN`; a test compares the three.
Statements are written out; SQL stays within SQLite 3.34 (RHEL 9): no RETURNING, no STRICT.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.model.metric import METRICS

HIGHEST, LOWEST, MEAN, LAST = "highest", "lowest", "mean", "last"


@dataclass(frozen=True)
class Column:
    """One metric. `fold` is what is kept of several values when rows are thinned: of what can hurt, the worst."""

    metric: str
    fold: str

    @property
    def name(self) -> str:
        """As the tables call it."""
        return self.metric.split(".", 1)[1]

    @property
    def unit(self) -> str:
        """The metric's."""
        return METRICS[self.metric].unit


# Each tick, a row a GPU (table samples)
GPU_COLUMNS = (
    Column("gpu.temperature", HIGHEST),
    Column("gpu.memory_temperature", HIGHEST),
    Column("gpu.slowdown_margin", LOWEST),
    Column("gpu.shutdown_margin", LOWEST),
    Column("gpu.operating_margin", LOWEST),
    Column("gpu.power", HIGHEST),
    Column("gpu.power_limit", LOWEST),
    Column("gpu.energy", LAST),
    Column("gpu.utilisation", MEAN),
    Column("gpu.memory_utilisation", MEAN),
    Column("gpu.memory_used", HIGHEST),
    Column("gpu.sm_clock", LOWEST),
    Column("gpu.memory_clock", LOWEST),
    Column("gpu.pstate", HIGHEST),
    Column("gpu.fan", HIGHEST),
    Column("gpu.sw_power_cap", HIGHEST),
    Column("gpu.hw_slowdown", HIGHEST),
    Column("gpu.sw_thermal_slowdown", HIGHEST),
    Column("gpu.hw_thermal_slowdown", HIGHEST),
    Column("gpu.hw_power_brake", HIGHEST),
)
# When they change, and each hour, a row a GPU (table slow); never thinned
SLOW_COLUMNS = (
    Column("gpu.memory_total", LAST),
    Column("gpu.slowdown_point", LAST),
    Column("gpu.shutdown_point", LAST),
    Column("gpu.operating_point", LAST),
    Column("gpu.memory_operating_point", LAST),
    Column("gpu.max_sm_clock", LAST),
    Column("gpu.max_memory_clock", LAST),
    Column("gpu.power_limit_set", LAST),
    Column("gpu.power_limit_default", LAST),
    Column("gpu.persistence_mode", LAST),
    Column("gpu.recovery_action", LAST),
    Column("gpu.ecc_enabled", LAST),
    Column("gpu.ecc_corrected", LAST),
    Column("gpu.ecc_uncorrected", LAST),
    Column("gpu.ecc_corrected_ever", LAST),
    Column("gpu.ecc_uncorrected_ever", LAST),
    Column("gpu.rows_remapped_correctable", LAST),
    Column("gpu.rows_remapped_uncorrectable", LAST),
    Column("gpu.row_remap_pending", LAST),
    Column("gpu.row_remap_failed", LAST),
    Column("gpu.pages_retired_correctable", LAST),
    Column("gpu.pages_retired_uncorrectable", LAST),
    Column("gpu.page_retirement_pending", LAST),
    Column("gpu.pcie_generation", LAST),
    Column("gpu.pcie_generation_max", LAST),
    Column("gpu.pcie_width", LAST),
    Column("gpu.pcie_width_max", LAST),
    Column("gpu.pcie_replays", LAST),
    Column("gpu.nvlinks_up", LAST),
    Column("gpu.nvlinks_down", LAST),
    Column("gpu.nvlink_replays", LAST),
    Column("gpu.nvlink_recoveries", LAST),
    Column("gpu.nvlink_flit_errors", LAST),
    Column("gpu.nvlink_data_errors", LAST),
    Column("gpu.nvlink_effective_errors", LAST),
    Column("gpu.nvlink_failed_recoveries", LAST),
    Column("gpu.fabric_state", LAST),
    Column("gpu.fabric_status", LAST),
    Column("gpu.fabric_degraded", LAST),
    Column("gpu.mig_mode", LAST),
)
# Each tick, one row (table ticks)
HOST_COLUMNS = (
    Column("host.memory_available", LOWEST),
    Column("host.memory_available_ratio", LOWEST),
    Column("host.swap_used", HIGHEST),
    Column("host.memory_pressure_some", HIGHEST),
    Column("host.memory_pressure_full", HIGHEST),
    Column("host.cpu_pressure_some", HIGHEST),
    Column("host.cpu_pressure_full", HIGHEST),
    Column("host.io_pressure_some", HIGHEST),
    Column("host.io_pressure_full", HIGHEST),
    Column("host.oom_kills", LAST),
    Column("host.load_1m", HIGHEST),
    Column("host.clock_synchronised", LOWEST),
    Column("host.stuck_processes", HIGHEST),
    Column("host.driver_silent", HIGHEST),
    Column("host.store_failing", HIGHEST),
)

# Times: `ts` and `*_at` are UTC in ms, `up` is CLOCK_BOOTTIME in ms of the boot. A REAL that is a whole number takes
# the space of an integer, 0 and 1 take none.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE boots (number INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE)",
        """CREATE TABLE gpus (
            number INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE,
            idx INTEGER NOT NULL, name TEXT NOT NULL, pci TEXT NOT NULL)""",
        """CREATE TABLE ticks (
            ts INTEGER PRIMARY KEY, boot INTEGER NOT NULL, up INTEGER NOT NULL, driver TEXT,
            memory_available REAL, memory_available_ratio REAL, swap_used REAL,
            memory_pressure_some REAL, memory_pressure_full REAL, cpu_pressure_some REAL, cpu_pressure_full REAL,
            io_pressure_some REAL, io_pressure_full REAL, oom_kills REAL, load_1m REAL, clock_synchronised REAL,
            stuck_processes REAL, driver_silent REAL, store_failing REAL)""",
        """CREATE TABLE samples (
            ts INTEGER NOT NULL, gpu INTEGER NOT NULL, idx INTEGER NOT NULL, state INTEGER NOT NULL,
            temperature REAL, memory_temperature REAL, slowdown_margin REAL, shutdown_margin REAL,
            operating_margin REAL, power REAL, power_limit REAL, energy REAL, utilisation REAL,
            memory_utilisation REAL, memory_used REAL, sm_clock REAL, memory_clock REAL, pstate REAL, fan REAL,
            sw_power_cap REAL, hw_slowdown REAL, sw_thermal_slowdown REAL, hw_thermal_slowdown REAL,
            hw_power_brake REAL, PRIMARY KEY (ts, gpu)) WITHOUT ROWID""",
        """CREATE TABLE slow (
            ts INTEGER NOT NULL, gpu INTEGER NOT NULL,
            memory_total REAL, slowdown_point REAL, shutdown_point REAL, operating_point REAL,
            memory_operating_point REAL, max_sm_clock REAL, max_memory_clock REAL, power_limit_set REAL,
            power_limit_default REAL, persistence_mode REAL, recovery_action REAL, ecc_enabled REAL,
            ecc_corrected REAL, ecc_uncorrected REAL, ecc_corrected_ever REAL, ecc_uncorrected_ever REAL,
            rows_remapped_correctable REAL, rows_remapped_uncorrectable REAL, row_remap_pending REAL,
            row_remap_failed REAL, pages_retired_correctable REAL, pages_retired_uncorrectable REAL,
            page_retirement_pending REAL, pcie_generation REAL, pcie_generation_max REAL, pcie_width REAL,
            pcie_width_max REAL, pcie_replays REAL, nvlinks_up REAL, nvlinks_down REAL, nvlink_replays REAL,
            nvlink_recoveries REAL, nvlink_flit_errors REAL, nvlink_data_errors REAL, nvlink_effective_errors REAL,
            nvlink_failed_recoveries REAL, fabric_state REAL, fabric_status REAL, fabric_degraded REAL,
            mig_mode REAL, PRIMARY KEY (ts, gpu)) WITHOUT ROWID""",
        """CREATE TABLE gaps (
            number INTEGER PRIMARY KEY, from_at INTEGER NOT NULL, until_at INTEGER,
            reason TEXT NOT NULL, detail TEXT NOT NULL)""",
        "CREATE INDEX gaps_from ON gaps (from_at)",
        """CREATE TABLE events (
            key INTEGER PRIMARY KEY, at INTEGER NOT NULL, up INTEGER NOT NULL, boot_id TEXT NOT NULL,
            seen_at INTEGER NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, uuid TEXT, pci TEXT, unit TEXT,
            incident INTEGER, count INTEGER NOT NULL, text TEXT NOT NULL, fields TEXT NOT NULL)""",
        "CREATE INDEX events_at ON events (at)",
        "CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    ),
)
SCHEMA = len(MIGRATIONS)
SET_SCHEMA = tuple(f"PRAGMA user_version={version}" for version in range(SCHEMA + 1))

INSERT_TICK = """INSERT OR REPLACE INTO ticks (
    ts, boot, up, driver,
    memory_available, memory_available_ratio, swap_used, memory_pressure_some, memory_pressure_full,
    cpu_pressure_some, cpu_pressure_full, io_pressure_some, io_pressure_full, oom_kills, load_1m,
    clock_synchronised, stuck_processes, driver_silent, store_failing)
    VALUES (?,?,?,?, ?,?,?,?,?, ?,?,?,?,?,?, ?,?,?,?)"""
INSERT_SAMPLE = """INSERT OR REPLACE INTO samples (
    ts, gpu, idx, state,
    temperature, memory_temperature, slowdown_margin, shutdown_margin, operating_margin, power, power_limit, energy,
    utilisation, memory_utilisation, memory_used, sm_clock, memory_clock, pstate, fan, sw_power_cap, hw_slowdown,
    sw_thermal_slowdown, hw_thermal_slowdown, hw_power_brake)
    VALUES (?,?,?,?, ?,?,?,?,?,?,?,?, ?,?,?,?,?,?,?,?,?, ?,?,?)"""
INSERT_SLOW = """INSERT OR REPLACE INTO slow (
    ts, gpu,
    memory_total, slowdown_point, shutdown_point, operating_point, memory_operating_point, max_sm_clock,
    max_memory_clock, power_limit_set, power_limit_default, persistence_mode, recovery_action, ecc_enabled,
    ecc_corrected, ecc_uncorrected, ecc_corrected_ever, ecc_uncorrected_ever, rows_remapped_correctable,
    rows_remapped_uncorrectable, row_remap_pending, row_remap_failed, pages_retired_correctable,
    pages_retired_uncorrectable, page_retirement_pending, pcie_generation, pcie_generation_max, pcie_width,
    pcie_width_max, pcie_replays, nvlinks_up, nvlinks_down, nvlink_replays, nvlink_recoveries, nvlink_flit_errors,
    nvlink_data_errors, nvlink_effective_errors, nvlink_failed_recoveries, fabric_state, fabric_status,
    fabric_degraded, mig_mode)
    VALUES (?,?, ?,?,?,?,?,?, ?,?,?,?,?,?, ?,?,?,?,?, ?,?,?,?, ?,?,?,?,?, ?,?,?,?,?,?,?, ?,?,?,?,?, ?,?)"""
INSERT_EVENT = """INSERT INTO events (
    key, at, up, boot_id, seen_at, kind, source, uuid, pci, unit, incident, count, text, fields)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)
    ON CONFLICT (key) DO UPDATE SET
    count = max(count, excluded.count), incident = coalesce(excluded.incident, incident)"""
