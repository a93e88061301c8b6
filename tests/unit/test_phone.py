"""How the demo draws messages."""

from __future__ import annotations

from datetime import timezone

from hypothesis import given
from hypothesis import strategies as some

from gpuwatch.simulation.phone import columns, phone
from gpuwatch.simulation.receiver import Received

TITLE = '**<font color="warning">【严重】gpu-07 GPU3 过热，已停 llama-train</font>**'


def received(content: str, mentioned: tuple[str, ...] = ()) -> Received:
    return Received(0.0, "markdown", content, mentioned, 200, 0)


def test_bubbles() -> None:
    drawn = phone([received(f"{TITLE}\n现在 79℃"), received("called", ("@all",))], timezone.utc, 48)
    assert drawn.split("\n") == [
        "╭──────────────────────────────────────────────────╮",
        "│                 WeCom · gpuwatch                 │",
        "├──────────────────────────────────────────────────┤",
        "│                     00:00:00                     │",
        "│ 【严重】gpu-07 GPU3 过热，已停 llama-train       │",
        "│ 现在 79℃                                         │",
        "├──────────────────────────────────────────────────┤",
        "│                     00:00:00                     │",
        "│ called                                           │",
        "│ @all                                             │",
        "╰──────────────────────────────────────────────────╯",
    ]


@given(some.lists(some.text(some.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=200), max_size=3))
def test_every_row_is_as_wide_as_the_frame(contents: list[str]) -> None:
    rows = phone([received(content) for content in contents], timezone.utc, 40).split("\n")
    assert {columns(row) for row in rows} == {44}


def test_words_are_kept_together() -> None:
    rows = phone([received("gpuwatch incident show 17 tells more of it")], timezone.utc, 30).split("\n")
    assert rows[4:6] == ["│ gpuwatch incident show 17      │", "│ tells more of it               │"]
