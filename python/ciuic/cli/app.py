# SPDX-License-Identifier: Apache-2.0
"""The command ``ciuic`` and its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from ciuic.bench.command import bench
from ciuic.cli.info import info
from ciuic.cli.plan import plan
from ciuic.cli.report import report
from ciuic.cli.run import run
from ciuic.cli.selftest import selftest
from ciuic.cli.trace import trace

app = typer.Typer(
    help="Collective communication for training on the network people have.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# What follows the program's name belongs to the program.
_PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": False}

app.command(context_settings=_PASS_ON)(run)
app.command()(bench)
app.command()(plan)
app.command()(trace)
app.command()(info)
app.command()(selftest)
app.command()(report)


def _show_version(asked: bool) -> None:
    if asked:
        from ciuic import version

        typer.echo(f"ciuic {version()}")
        raise typer.Exit


@app.callback()
def _ciuic(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass
