"""Runs benchmarks: ``python -m benchmarks [NAME] [--json FILE]``; all of them without a name.

Every module of this folder that has a function ``run`` is one, named after its file: ``run(arguments)`` measures,
prints its table and returns what goes into the JSON; ``add_arguments(parser)`` may declare more options.
"""
from __future__ import annotations

import argparse
import datetime
import importlib
import json
import pkgutil
import platform
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def modules() -> dict[str, ModuleType]:
    """The benchmarks by name."""
    found: dict[str, ModuleType] = {}
    for info in pkgutil.iter_modules([str(HERE)]):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"benchmarks.{info.name}")
        if hasattr(module, "run"):
            found[info.name] = module
    return found


def parsed(benchmarks: dict[str, ModuleType]) -> argparse.Namespace:
    """The command line; one sub-command for each benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures beside the other clients.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures")
    commands = parser.add_subparsers(dest="name", metavar="NAME")
    for name, module in benchmarks.items():
        summary = (module.__doc__ or name).strip().splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--json", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="keep the figures")
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
    return parser.parse_args()


def defaults(module: ModuleType) -> argparse.Namespace:
    """The options of a benchmark that was not named, and so was given none."""
    parser = argparse.ArgumentParser()
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    return parser.parse_args([])


def main() -> None:
    """Run what was asked for, and keep the figures."""
    benchmarks = modules()
    arguments = parsed(benchmarks)
    results: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for name, module in benchmarks.items():
        if arguments.name in (None, name):
            results[name] = module.run(arguments if arguments.name else defaults(module))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
