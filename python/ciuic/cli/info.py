# SPDX-License-Identifier: Apache-2.0
"""``ciuic info``: what is in force on this machine, and where it came from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print version, settings, cores, SIMD target, interfaces, and the libraries beside."""
    with errors_as_lines("info"):
        facts = collect()
    if as_json:
        import json

        typer.echo(json.dumps(facts, indent=2))
    else:
        _print(facts)


def collect() -> dict[str, Any]:
    """The facts that ``--json`` prints."""
    import json
    import platform

    from ciuic import _native

    return {
        "version": _native.version(),
        "abi": _native.abi(),
        "python": platform.python_version(),
        "libraries": {name: _version_of(name) for name in ("numpy", "torch", "transformers")},
        "host": _native.host(),
        "simd": _native.simd_target(),
        "interfaces": _native.interfaces(),
        "settings": json.loads(_native.settings_json()),
        "warnings": _native.settings_warnings(),
    }


def _version_of(distribution: str) -> str | None:
    """Looked up, not imported: that takes seconds."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    host = facts["host"]
    head = Table.grid(padding=(0, 2))
    head.add_row("ciuic", f"{facts['version']} (ABI {facts['abi']}), Python {facts['python']}")
    head.add_row("host", f"{host['name']}, {host['cores']} cores for this process")
    head.add_row("SIMD", facts["simd"])
    for name, version in facts["libraries"].items():
        head.add_row(name, version or "not installed")
    for interface in facts["interfaces"]:
        notes = [word for word in ("loopback", "container") if interface[word]]
        notes += [] if interface["up"] else ["down"]
        text = ", ".join(interface["addresses"]) or "no address"
        head.add_row(interface["name"], text + "".join(f" ({note})" for note in notes))
    console.print(head)

    table = Table("setting", "value", "from", "meaning", title=None)
    for setting in facts["settings"]:
        unit = f" {setting['unit']}" if setting["unit"] and setting["value"] else ""
        table.add_row(
            setting["name"],
            Text(f"{setting['value']}{unit}"),
            setting["source"],
            Text(f"{setting['help']} ({setting['allowed']})"),
        )
    console.print(table)
    for warning in facts["warnings"]:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
