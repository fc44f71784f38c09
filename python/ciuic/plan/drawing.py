# SPDX-License-Identifier: Apache-2.0
"""A described plan as an SVG picture: a row for each rank, a box for each step, an arrow for each
message. Time goes to the right as far as the plan itself orders its steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ciuic.errors import InvalidArgumentError
from ciuic.plan.layout import Layout

MOST_STEPS = 20_000  # no viewer shows more of them

COLORS = {"send": "#cfe3ff", "receive": "#d9f2d9", "reduce": "#ffe0b3", "copy": "#e6e6e6"}
_EDGES = {"send": "#2b6cb0", "receive": "#2f855a", "reduce": "#c05621", "copy": "#666666"}
_WIDTH, _HEIGHT = 108, 34  # of a box
_COLUMN, _ROW = 140, 66
_LEFT, _TOP = 78, 64


@dataclass
class Box:
    """A step of a rank, and where it stands."""

    rank: int
    number: int
    step: dict[str, Any]
    before: list[Box] = field(default_factory=list)  # that it waits for, here or by a message
    column: int = -1

    @property
    def x(self) -> int:
        return _LEFT + self.column * _COLUMN

    @property
    def y(self) -> int:
        return _TOP + self.rank * _ROW


@dataclass(frozen=True)
class Arrow:
    """A message."""

    sender: Box
    receiver: Box


def arrows_of(boxes: list[list[Box]]) -> list[Arrow]:
    """The k-th send to a peer on a lane meets the peer's k-th receive from there."""
    sends: dict[tuple[int, int, int], list[Box]] = {}  # by sender, receiver, lane
    for row in boxes:
        for box in row:
            if box.step["kind"] == "send":
                for peer in box.step["peers"]:
                    sends.setdefault((box.rank, peer, box.step["lane"]), []).append(box)
    arrows = []
    taken: dict[tuple[int, int, int], int] = {}
    for row in boxes:
        for box in row:
            if box.step["kind"] not in ("receive", "reduce"):
                continue
            for peer in box.step["peers"]:
                key = (peer, box.rank, box.step["lane"])
                place = taken.get(key, 0)
                taken[key] = place + 1
                arrows.append(Arrow(sends[key][place], box))
    return arrows


def _place(boxes: list[list[Box]], arrows: list[Arrow]) -> int:
    """Gives each box a column, to the right of all that it waits for; how many there are."""
    for row in boxes:
        for box in row:
            box.before = [row[after["step"]] for after in box.step["after"]]
    for arrow in arrows:
        arrow.receiver.before.append(arrow.sender)
    columns = 0
    free: list[set[int]] = [set() for _ in boxes]  # columns that a row has taken
    waiting = [box for row in boxes for box in row]
    while waiting:
        later = []
        for box in waiting:
            if any(each.column < 0 for each in box.before):
                later.append(box)
                continue
            column = max((each.column + 1 for each in box.before), default=0)
            while column in free[box.rank]:
                column += 1
            free[box.rank].add(column)
            box.column = column
            columns = max(columns, column + 1)
        if len(later) == len(waiting):
            raise InvalidArgumentError("steps wait for each other in a circle")
        waiting = later
    return columns


def _range(blocks: dict[str, Any] | None) -> str:
    if blocks is None:
        return ""
    short = {"input": "in", "output": "out", "scratch": "tmp"}[blocks["space"]]
    first, count = blocks["first"], blocks["count"]
    if count == 0:
        return "nothing"
    return f"{short} {first}" if count == 1 else f"{short} {first}..{first + count - 1}"


def _words(box: Box) -> tuple[str, str]:
    """The two lines of a box."""
    step = box.step
    peers = step["peers"]
    some = ",".join(str(peer) for peer in peers[:4]) + ("…" if len(peers) > 4 else "")
    source, target = _range(step["source"]), _range(step["target"])
    if step["kind"] == "send":
        return f"send → {some}", source
    if step["kind"] == "receive":
        return f"receive ← {some}", target
    if step["kind"] == "reduce":
        return f"reduce ← {some}", source if source == target else f"{source} → {target}"
    return "copy", f"{source} → {target}"


def _title(box: Box) -> str:
    step = box.step
    after = ", ".join(
        f"{each['step']}{' whole' if each['whole'] else ''}" for each in step["after"]
    )
    marks = [mark for mark in ("received_raw", "final") if step[mark]]
    lines = [
        f"rank {box.rank}, step {box.number}: " + " ".join(_words(box)),
        f"{step['bytes']} bytes, lane {step['lane']}",
        f"after steps {after}" if after else "",
        ", ".join(marks),
    ]
    return "\n".join(line for line in lines if line)


def _box(box: Box) -> str:
    kind = box.step["kind"]
    first, second = (escape(line) for line in _words(box))
    middle = box.x + _WIDTH // 2
    return (
        f'<g class="step {kind}"><title>{escape(_title(box))}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
        f'fill="{COLORS[kind]}" stroke="{_EDGES[kind]}"/>'
        f'<text x="{middle}" y="{box.y + 14}">{first}</text>'
        f'<text x="{middle}" y="{box.y + 27}">{second}</text></g>'
    )


def _arrow(arrow: Arrow) -> str:
    """From the right edge of the one to the left edge of the other, between them a curve."""
    begin = (arrow.sender.x + _WIDTH, arrow.sender.y + _HEIGHT // 2)
    end = (arrow.receiver.x, arrow.receiver.y + _HEIGHT // 2)
    bend = max(16, (end[0] - begin[0]) // 2)
    lane = arrow.sender.step["lane"]
    title = f"rank {arrow.sender.rank} to rank {arrow.receiver.rank}, lane {lane}"
    return (
        f'<path class="message" d="M {begin[0]} {begin[1]} C {begin[0] + bend} {begin[1]}, '
        f'{end[0] - bend} {end[1]}, {end[0]} {end[1]}" marker-end="url(#head)"'
        f"{' stroke-dasharray=' + quoteattr('5 3') if lane else ''}>"
        f"<title>{escape(title)}</title></path>"
    )


def _rows(layout: Layout, width: int) -> list[str]:
    parts = []
    for rank in range(layout.size):
        y = _TOP + rank * _ROW - (_ROW - _HEIGHT) // 2
        shade = "#fafafa" if layout.host_of(rank) % 2 else "#f0f2f5"
        parts.append(
            f'<rect class="row" x="0" y="{y}" width="{width}" height="{_ROW}" fill="{shade}"/>'
        )
        host = f" host {layout.host_of(rank)}" if layout.hosts > 1 else ""
        parts.append(f'<text class="rank" x="8" y="{y + _ROW // 2 - 2}">rank {rank}</text>')
        if host:
            parts.append(f'<text class="host" x="8" y="{y + _ROW // 2 + 12}">{host.strip()}</text>')
    return parts


def _legend() -> list[str]:
    parts = []
    for place, (kind, color) in enumerate(COLORS.items()):
        x = _LEFT + place * 84
        parts.append(
            f'<rect x="{x}" y="26" width="12" height="12" rx="2" fill="{color}" '
            f'stroke="{_EDGES[kind]}"/><text class="rank" x="{x + 17}" y="36">{kind}</text>'
        )
    return parts


def svg(described: dict[str, Any], layout: Layout) -> str:
    """The picture of what ``describe_plan`` says of all ranks.

    Raises:
        ciuic.InvalidArgumentError: More than :data:`MOST_STEPS` steps.
    """
    steps = described["totals"]["steps"]
    if steps > MOST_STEPS:
        raise InvalidArgumentError(
            f"{steps} steps are too many for a picture; {MOST_STEPS} can be drawn: take fewer ranks"
        )
    boxes = [
        [Box(plan["rank"], number, step) for number, step in enumerate(plan["steps"])]
        for plan in described["plans"]
    ]
    arrows = arrows_of(boxes)
    columns = _place(boxes, arrows)
    width = _LEFT + max(columns, 3) * _COLUMN
    height = _TOP + layout.size * _ROW
    place = f"{layout.size} ranks on {layout.hosts} host{'s' * (layout.hosts != 1)}"
    root = "" if described["root"] is None else f", root {described['root']}"
    heading = (
        f"{described['operation']} by {described['algorithm']}, {place}{root}; "
        f"{described['bytes']:,} bytes: predicted {described['predicted_us']:.1f} µs"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
            f"<title>{escape(heading)}</title>",
            "<style>text{text-anchor:middle;fill:#222}.rank,.host,.heading{text-anchor:start}"
            ".rank{font-weight:bold}.host{fill:#666}.heading{font-size:13px}"
            ".message{fill:none;stroke:#555;stroke-width:1.2;opacity:.8}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#555"/></marker>'
            "</defs>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *_rows(layout, width),
            f'<text class="heading" x="8" y="17">{escape(heading)}</text>',
            *_legend(),
            *(_arrow(arrow) for arrow in arrows),
            *(_box(box) for row in boxes for box in row),
            "</svg>\n",
        ]
    )
