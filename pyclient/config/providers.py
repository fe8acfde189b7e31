"""Config providers: values of options that stand elsewhere, as ``${file:/run/secrets/kafka.properties:password}``.

KIP-297 and KIP-421. ``config_providers`` names the providers that are asked; without it no value is looked up. A value
from a provider is not searched for another reference.
"""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pyclient.config.properties import properties
from pyclient.errors import ConfigurationError
from pyclient.redaction import Secret

PREFIX: Final = "config.providers"
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}:]*)\}")
_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
}
_PATHS: Final = "param.allowed.paths"
_PATTERN: Final = "param.allowlist.pattern"
_PARAMETERS: Final[Mapping[str, str]] = {"file": _PATHS, "directory": _PATHS, "env": _PATTERN}


class _NoValueError(Exception):
    """Why a provider has no value; its text holds none."""


class _Reference(NamedTuple):
    path: str
    key: str


_Provider: TypeAlias = Callable[[_Reference], Secret]
Settings: TypeAlias = Mapping[str, object]


def provided(*layers: Settings) -> list[Settings]:
    """The same settings with the values that their providers have; what configures providers is taken out.

    Raises:
        ConfigurationError: a provider is unknown, or has no such value.
    """
    settings = {key: value for layer in layers for key, value in layer.items()}
    names = _names(settings)
    if not names:
        return list(layers)
    providers = {name: _provider(name, _parameters(name, settings)) for name in names}
    return [{key: _filled(key, value, providers) for key, value in layer.items() if not _dotted(key).startswith(f"{PREFIX}.")} for layer in layers]


def _names(settings: dict[str, object]) -> list[str]:
    given = next((value for key, value in reversed(settings.items()) if _dotted(key) == PREFIX), None)
    if isinstance(given, str):
        return [each.strip() for each in given.split(",") if each.strip()]
    return list(given) if isinstance(given, Iterable) and all(isinstance(each, str) for each in given) else []


def _dotted(key: object) -> str:
    return key.replace("_", ".") if isinstance(key, str) else ""


def _parameters(name: str, settings: Settings) -> dict[str, str]:
    """What is set for one provider, by the rest of its option's name: ``class``, ``param.allowed.paths``."""
    start = f"{PREFIX}.{_dotted(name)}."
    return {_dotted(key).removeprefix(start): str(value) for key, value in settings.items() if _dotted(key).startswith(start)}


def _provider(name: str, parameters: Mapping[str, str]) -> _Provider:
    kind = _CLASSES.get(parameters.get("class", ""), parameters.get("class", name))
    if kind not in _PARAMETERS:
        known = ", ".join(_PARAMETERS)
        raise ConfigurationError(f"{PREFIX}.{name}.class names {kind!r}: there are the providers {known}, and Java's names of them", option="config_providers")
    unknown = parameters.keys() - {"class", _PARAMETERS[kind]}
    if unknown:
        raise ConfigurationError(
            f"{PREFIX}.{name}.{min(unknown)} is not known: the provider {kind} takes {PREFIX}.{name}.{_PARAMETERS[kind]}", option="config_providers")
    return _MAKERS[kind](parameters.get(_PARAMETERS[kind], ""))


def _filled(option: str, value: object, providers: Mapping[str, _Provider]) -> object:
    """*value* with each reference to one of the *providers* replaced; the text of others stays, as in Java.

    The option decides whether it is a secret when it is converted; until then no report of variables shows it.
    """
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        return match[0] if provider is None else _value(option, match[0], provider, _Reference(match[2] or "", match[3]))

    return Secret(re.sub(_REFERENCE, found, value))


def _value(option: str, text: str, provider: _Provider, reference: _Reference) -> Secret:
    try:
        return provider(reference)
    except _NoValueError as why:
        raise ConfigurationError(f"{option} = {text}: {why}", option=option) from None


# ---- the providers ---------------------------------------------------------------------------------------------------


def _file(allowed: str) -> _Provider:
    """``${file:path:key}``: a key of a file of Java's properties."""

    def value(reference: _Reference) -> Secret:
        values = _properties(_path(reference.path, allowed))
        if reference.key not in values:
            raise _NoValueError(f"{reference.path} has no key {reference.key!r}")
        return values[reference.key]

    return value


def _directory(allowed: str) -> _Provider:
    """``${directory:path:name}``: the whole content of a file in a directory, as Kubernetes mounts secrets."""

    def value(reference: _Reference) -> Secret:
        if reference.key in ("", ".", "..") or Path(reference.key).name != reference.key:
            raise _NoValueError(f"{reference.key!r} is not the name of a file in {reference.path}")
        return _read(_path(str(Path(reference.path, reference.key)), allowed))

    return value


def _env(pattern: str) -> _Provider:
    """``${env:NAME}``: an environment variable."""
    try:
        allowed = re.compile(pattern or ".*")
    except re.error as error:
        raise ConfigurationError(f"{_PATTERN} of the provider env is no regular expression: {error}", option="config_providers") from None

    def value(reference: _Reference) -> Secret:
        if allowed.fullmatch(reference.key) is None:
            raise _NoValueError(f"{_PATTERN} of its provider does not allow {reference.key!r}")
        if reference.key not in os.environ:
            raise _NoValueError(f"the environment variable {reference.key!r} is not set")
        return Secret(os.environ[reference.key])

    return value


_MAKERS: Final[Mapping[str, Callable[[str], _Provider]]] = {"file": _file, "directory": _directory, "env": _env}


def _path(path: str, allowed: str) -> Path:
    """Where *path* leads, links followed; it must lie in one of the *allowed* folders (separated by commas), if any."""
    real = _real(path)
    folders = [_real(each.strip()) for each in allowed.split(",") if each.strip()]
    if folders and not any(real.is_relative_to(folder) for folder in folders):
        raise _NoValueError(f"{_PATHS} of its provider does not allow {path}")
    return real


def _real(path: str) -> Path:
    try:
        real = Path(path).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, links in a circle
        raise _NoValueError(f"{path!r} is no path of a file") from None
    if any(part.is_symlink() for part in (real, *real.parents)):  # since Python 3.13 a circle is kept, without an error
        raise _NoValueError(f"{path!r} is no path of a file")
    return real


def _properties(path: Path) -> dict[str, Secret]:
    try:
        return properties(_read(path))
    except ValueError as error:
        raise _NoValueError(f"{path} is no file of properties: {error}") from None


def _read(path: Path) -> Secret:
    try:
        return Secret(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _NoValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None


