# SPDX-License-Identifier: Apache-2.0
"""``python -m ciuic``: the same as the command ``ciuic``."""


def main() -> None:
    """Entry point of the command."""
    from ciuic.cli.app import app

    app(prog_name="ciuic")


if __name__ == "__main__":
    main()
