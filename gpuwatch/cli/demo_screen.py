"""What the demo shows while it runs: one line a second for the hot card, and each thing that happens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gpuwatch.cli.output import paint
from gpuwatch.daemon.cycle import Seen
from gpuwatch.model.intent import Intent, IntentState

BAR_FROM_C, BAR_TO_C, BAR_WIDTH = 30.0, 95.0, 26
_WORDS = {
    IntentState.PLANNED: "decided to stop {target}; evidence first",
    IntentState.PRESERVED: "evidence is on disk and fsynced: {bundle}",
    IntentState.SENT: "a fresh sample still wants it: StopUnit {target} sent",
    IntentState.GONE: "{target} is gone",
    IntentState.VERIFIED: "verified: {target} stays gone",
}


class Screen:
    """Turns what each cycle saw into lines. On a terminal the temperature line rewrites itself."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._told: set[str] = set()
        self._messages = 0
        self._second = -1
        self._live = sys.stdout.isatty()
        self._hanging = False
        self.over = False

    def lines(self, seen: Seen, seconds: float, messages: Sequence[Any]) -> Iterator[str]:
        """What is new, most of the time nothing."""
        for text in self._news(seen):
            if text not in self._told:
                self._told.add(text)
                yield self._line(seconds, text)
        for message in messages[self._messages :]:
            self._messages += 1
            if message.kind == "markdown":
                yield self._line(seconds, f"phone: {_title(message.content)}")
        resolved = any("resolved" in incident.notified for incident in seen.policy.incidents.values())
        self.over = resolved and seen.queued == 0
        if int(seconds) != self._second:
            self._second = int(seconds)
            self._temperature(seen, seconds)

    def end(self) -> None:
        """Leave the rewritten line behind."""
        if self._hanging:
            sys.stdout.write("\n")
            self._hanging = False

    def _news(self, seen: Seen) -> Iterator[str]:
        for incident in seen.policy.incidents.values():
            rules = ", ".join(cause.rule for cause in incident.causes)
            yield paint(f"incident {incident.id}: {incident.label}: {rules}", "red")
        for alert in seen.policy.alerts.values():
            if alert.phase == "pending":
                yield f"{alert.label}: {alert.rule} holds; it must hold for its time"
            elif not alert.incident:
                yield f"{alert.label}: {alert.rule}: for the log, nobody is woken up"
        for intent in seen.intents:
            if intent.action == "throttle":
                yield from _throttled(intent)
                continue
            # A cycle may take two steps at once: tell those that left a mark, in order.
            steps = [IntentState.PLANNED]
            steps += [IntentState.PRESERVED] if intent.preserved else []
            steps += [IntentState.SENT] if intent.sent else []
            steps += [IntentState.GONE] if intent.gone else []
            steps += [intent.state] if intent.state is IntentState.VERIFIED else []
            for step in steps:
                yield paint(_WORDS[step].format(target=intent.target, bundle=intent.bundle), "bold")

    def _line(self, seconds: float, text: str) -> str:
        if self._hanging:
            sys.stdout.write("\r\x1b[K")
            self._hanging = False
        return f"{seconds:5.1f} s  {text}"

    def _temperature(self, seen: Seen, seconds: float) -> None:
        sample = next((each for each in seen.report.samples if each.uuid == self._uuid), None)
        reading = None if sample is None else sample.readings.get("gpu.temperature")
        if reading is None or reading.value is None:
            return
        filled = round((reading.value - BAR_FROM_C) / (BAR_TO_C - BAR_FROM_C) * BAR_WIDTH)
        bar = "#" * max(0, min(BAR_WIDTH, filled))
        text = f"{seconds:5.1f} s  GPU 3 {reading.value:3.0f} C  [{bar:<{BAR_WIDTH}}]  shuts down at {BAR_TO_C:.0f} C"
        if self._live:
            sys.stdout.write(f"\r\x1b[K{text}")
            self._hanging = True
        elif self._second % 5 == 0:
            sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _throttled(intent: Intent) -> Iterator[str]:
    if intent.applied is None or intent.before is None:
        return
    if intent.state is IntentState.UNDONE:
        yield paint(f"power limit back at {intent.before:.0f} W", "bold")
    elif intent.state is IntentState.APPLIED:
        yield paint(f"power limit {intent.before:.0f} -> {intent.value:.0f} W: the job runs on, slower", "bold")


def _title(content: str) -> str:
    import re

    return re.sub(r"</?font[^>]*>|\*\*", "", content.split("\n", 1)[0])
