"""Applies option names and values of other clients, so that their configuration can be pasted.

A name of `foreign_option_table` is renamed or ignored, with one warning per process, or refused. Independent of types
or ranges: the results are validated like any other setting.
"""
from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Container, Mapping
from typing import Any, Final

from pyclient.errors import ConfigurationError, UnknownOptionError, with_article
from pyclient.redaction import Secret
from pyclient.foreign_option_table import (
    FROM_LIBRDKAFKA, NAMES, OTHER_DEFAULTS, ROLES, VALUES, ByValue, Ignored, Refused, Renamed, Row, token_callback,
)


class OptionWarning(UserWarning):
    """An option of another client was renamed or ignored; the message says to what, or why."""


_JAAS_NAME: Final = "sasl_jaas_config"
_JAAS: Final = re.compile(
    r"\s*[\w.]*\.(?:Plain|Scram)LoginModule\s+required\b(?=.*?\busername=\"(?P<user>[^\"]*)\")"
    r"(?=.*?\bpassword=\"(?P<password>(?:[^\"\\]|\\.)*)\").*;\s*", re.DOTALL)
_IAM: Final = re.compile(r"\s*software\.amazon\.msk\.auth\.iam\.IAMLoginModule\s+required((?:\s+\w+=(?:\"[^\"]*\"|[^\s;\"]+))*)\s*;\s*")
_IAM_PAIR: Final = re.compile(r"(\w+)=(?:\"([^\"]*)\"|([^\s;\"]+))")
_IAM_NAMES: Final = {
    "awsProfileName": "sasl_aws_msk_iam_profile", "awsRoleArn": "sasl_aws_msk_iam_role_arn",
    "awsRoleSessionName": "sasl_aws_msk_iam_role_session_name",
}
"""Options of Amazon's login module for Java."""
_TOKENAUTH: Final = re.compile(r"ScramLoginModule\s.*\btokenauth=\"?true\b", re.DOTALL)


def names_of(option: str) -> set[str]:
    """Every name of *option*, with underscores: this client's own and those of other clients."""
    jaas = {_JAAS_NAME} if option in ("sasl_plain_username", "sasl_plain_password") else set()
    return {option, *jaas, *(name for name, row in NAMES.items() if option in _targets(row))}


def _targets(row: Row) -> set[str]:
    fates = [*row.fates.values(), row.otherwise] if isinstance(row, ByValue) else [row]
    return {fate.to for fate in fates if isinstance(fate, Renamed)}


# ── looking up ───────────────────────────────────────────────────────────────────────────────────────────────────────

_warned: set[tuple[str, str]] = set()
_OTHER_DEFAULTS: Final = (
    "{name} is a name of librdkafka's, two of whose defaults are others here. Keys go to other partitions: partitioner is 'consistent_random' there and "
    "'murmur2' here. Consumers also read what transactions have not committed: isolation_level is 'read_committed' there and 'read_uncommitted' here. "
    "This warning is not given where partitioner='consistent_random' (or 'murmur2') is set for producers, isolation_level='read_committed' (or "
    "'read_uncommitted') for consumers"
)


def settle(role: str, key: str, value: object, known: Mapping[str, str]) -> list[tuple[str, object]] | None:
    """This client's names and values for a setting; [] if it is ignored, None if the name is unknown.

    *known* maps each spelling of this client's own options to the option. Warns of each change once per process.

    Raises:
        ConfigurationError: the setting is refused; says what to use instead.
    """
    if key in known:
        return _translated(known[key], key, value)
    name = key.replace(".", "_")
    if name == _JAAS_NAME:
        return _jaas(key, value)
    row = ROLES.get((role, name), NAMES.get(name))
    if row is None:
        return None
    return [] if value is None else _apply(role, key, value, row, known)


def _apply(role: str, key: str, value: Any, row: Row, known: Mapping[str, str]) -> list[tuple[str, object]]:
    fate = row.fates.get(_word(value), row.otherwise) if isinstance(row, ByValue) else row
    if isinstance(fate, Refused):
        raise ConfigurationError(f"{key} is another client's option and cannot be used here: {fate.why}", option=key)
    if isinstance(fate, Ignored):
        _warn_once(key, "", f"{key} is another client's option and is ignored: {fate.why}")
        return []
    if fate.to not in known:
        raise UnknownOptionError(f"{key} (here {fate.to}) is no option of the {role}: leave it out", option=key)
    _warn_once(key, "", f"{key} is another client's name: it is {fate.to} here; use that")
    return _translated(fate.to, key, _moved(key, value, fate))


def _moved(key: str, value: object, fate: Renamed) -> object:
    try:
        return fate.value(value)
    except (TypeError, ValueError):
        shown = with_article(type(value).__name__) if fate.value is token_callback else repr(value)  # it may be a token
        raise ConfigurationError(f"{key} (here {fate.to}) is not allowed to be {shown}", option=fate.to) from None


def _translated(name: str, key: str, value: object) -> list[tuple[str, object]]:
    table = VALUES.get(name)
    if table is None or value is None:
        return [(name, value)]
    if name == "assignors":
        items = value.split(",") if isinstance(value, str) else value
        listed = list(items) if isinstance(items, (list, tuple)) else [items]
        return [(name, [_value(name, key, item.strip() if isinstance(item, str) else item, table) for item in listed])]
    return [(name, _value(name, key, value, table))]


def _value(name: str, key: str, value: object, table: Mapping[str, object]) -> object:
    word = _word(value)
    if word not in table:
        return value
    ours = table[word]
    if isinstance(ours, Refused):
        raise ConfigurationError(f"{key} = {value!r} cannot be used here: {ours.why}", option=name)
    _warn_once(key, word, f"{key} = {value!r} is another client's value: it is {ours!r} here; use that")
    return ours


def _word(value: object) -> str:
    return str(value).strip().lower() if isinstance(value, (str, int, float)) else ""


def _jaas(key: str, value: object) -> list[tuple[str, object]]:
    """User and password of a JAAS line for PLAIN or SCRAM. The line is a secret: no message shows it."""
    if value is None:
        return []
    iam = _IAM.fullmatch(value) if isinstance(value, str) else None
    if iam is not None:
        return _msk_iam(key, iam[1])
    match = _JAAS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigurationError(
            f"{key} is understood for PlainLoginModule and ScramLoginModule with username and password, and for IAMLoginModule: "
            "write sasl_plain_username and sasl_plain_password, or sasl_token_provider",
            option=key,
        )
    _warn_once(key, "", f"{key} is Java's: here it is sasl_plain_username and sasl_plain_password; use those")
    password = Secret(re.sub(r"\\(.)", r"\1", match["password"]))
    is_token = [("sasl_scram_tokenauth", True)] if _TOKENAUTH.search(match.string) else []
    return [("sasl_plain_username", match["user"]), ("sasl_plain_password", password), *is_token]


def _msk_iam(key: str, pairs: str) -> list[tuple[str, object]]:
    """The identity of a JAAS line for Amazon MSK."""
    given = {name: quoted or bare for name, quoted, bare in _IAM_PAIR.findall(pairs)}
    if others := given.keys() - _IAM_NAMES:
        raise ConfigurationError(f"{key}: {', '.join(sorted(others))} of IAMLoginModule cannot be used here: what is known is {', '.join(_IAM_NAMES)}", option=key)
    found: list[tuple[str, object]] = [(_IAM_NAMES[name], value) for name, value in given.items()]
    _warn_once(key, "", f"{key} is Java's: here it is {', '.join(name for name, _ in found) or 'nothing more than sasl_mechanism=AWS_MSK_IAM'}; use that")
    return found


def note_other_defaults(role: str, settings: Mapping[str, object], given: Container[str]) -> None:
    """Warn, once per process, that librdkafka's configuration does something else here because a default differs."""
    name = next((key for key, value in settings.items() if key in FROM_LIBRDKAFKA and value is not None), None)
    if name is not None and role in OTHER_DEFAULTS and OTHER_DEFAULTS[role] not in given:
        _warn_once("librdkafka", "", _OTHER_DEFAULTS.format(name=name))


def _warn_once(key: str, word: str, message: str) -> None:
    if (key, word) in _warned:
        return
    _warned.add((key, word))
    warnings.warn(message, OptionWarning, stacklevel=_frames_inside() + 1)


def _frames_inside() -> int:
    """The number of frames of this package above the user's line, which the warning should name."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pyclient":
        depth, frame = depth + 1, frame.f_back
    return depth - 1
