"""How an option is declared, and how a user's settings become a checked, frozen config object.

Independent of any single option: those are declared in ``client``, ``security``, ``producer``, ``consumer`` and
``admin``. From one declaration come validation, defaults, dotted names, the typed keyword signature, ``describe()``,
the page of options and the answer to a typo. Other clients' names are resolved by `pyclient.foreign_options`.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from typing import Any, ClassVar, Final, NamedTuple, Self

import attrs

from pyclient.config import imports
from pyclient.config.kinds import Kind, holds_pem
from pyclient.config.providers import provided
from pyclient.errors import ConfigurationError, UnknownOptionError, UnsupportedFeatureError
from pyclient.foreign_calls import habit
from pyclient.foreign_options import note_other_defaults, settle
from pyclient.redaction import HIDDEN, Secret, SecretBytes, is_private_url, public_url

_KEY: Final = "pyclient"
_UNKNOWN: Final = frozenset({"*"})
_SECRET_NAME: Final = re.compile(r"pas+_?(w|phr)|secret|jaas|token|oauthbearer.config|(private|ssl|store).key(?!.*(location|file))", re.IGNORECASE)
_UNITS: Final = {"_ms": "ms", "_bytes": "B", "_seconds": "s"}


@attrs.define(frozen=True, kw_only=True)
class Option:
    """One option as declared: the source of docs, signatures and messages."""

    name: str
    dotted: str
    kind: Kind
    default: Any
    doc: str
    since: str
    """The first Kafka release with an option of this name and meaning, or ``pyclient`` for this client's own."""
    importance: str
    unit: str
    secret: bool
    explicit: bool
    """It is a named parameter of the client's constructor, not one of its ``**options``."""

    @property
    def range(self) -> str:
        """The allowed values, in words."""
        return self.kind.expected

    def convert(self, value: object) -> Any:
        """The value as the config object holds it; None is the default. Raises ConfigurationError."""
        if value is None:
            value = self.default
        if value is None:
            return None
        provided = isinstance(value, Secret) and not self.secret
        try:
            converted = self.kind.convert(str(value) if provided else value)
        except ValueError as error:
            raise ConfigurationError(self._hidden_complaint() if provided else self._complaint(value, error), option=self.name) from None
        return Secret(converted) if isinstance(converted, str) and (self.secret or is_private_url(converted)) else converted

    def show(self, value: object) -> str:
        """The value as it may be printed."""
        if (self.secret and value is not None) or holds_pem(value):
            return HIDDEN
        return repr(public_url(str(value)) if is_private_url(value) else self.kind.shown(value))

    def _hidden_complaint(self) -> str:
        """A reference to the wrong key may have put a password here."""
        return f"{self.name} ({self.dotted}) = {HIDDEN}, from a config provider or a secret text, is not allowed: expected {self.kind.expected}"

    def _complaint(self, value: object, error: ValueError) -> str:
        what = f"{self.name} ({self.dotted})" if self.dotted != self.name else self.name
        said = f"expected {self.kind.expected}"
        extra = "" if self.secret or str(error) == said else f": {error}"
        unit = f" {self.unit}" if self.unit and isinstance(value, (int, float)) else ""
        return f"{what} = {self.show(value)}{unit} is not allowed: {said}{extra}"


def option(
    since: str,
    default: object,
    kind: Kind,
    doc: str,
    *,
    importance: str = "medium",
    dotted: str | None = None,
    unit: str | None = None,
    secret: bool = False,
    explicit: bool = False,
) -> Any:
    """Declare one option; its name and type are those of the attribute it is assigned to."""
    facts = {"dotted": dotted, "kind": kind, "default": default, "doc": doc, "since": since, "importance": importance}
    facts |= {"unit": unit, "secret": secret, "explicit": explicit}
    return attrs.field(
        default=default, repr=False, metadata={_KEY: facts}, converter=attrs.Converter(_convert, takes_field=True)
    )


def _convert(value: Any, field: Any) -> Any:
    return _of(field).convert(value)


def _of(field: Any) -> Option:
    facts = dict(field.metadata[_KEY])
    suffix = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
    facts["unit"] = suffix if facts["unit"] is None else facts["unit"]
    facts["dotted"] = facts["dotted"] or field.name.replace("_", ".")
    return Option(name=field.name, **facts)


class Rule(NamedTuple):
    """A rule between several options. A default that breaks it is replaced; values that the user set raise."""

    options: tuple[str, ...]
    holds: Callable[[Any], bool]
    law: str
    yields: Mapping[str, Callable[[Any], object]] = {}
    """Options whose *default* may be replaced to keep the rule, and by which value."""


class NotYet(NamedTuple):
    """A setting that this release does not support: setting it raises, instead of doing nothing in silence."""

    option: str
    asked: Callable[[Any], bool]
    instead: str


@attrs.define(frozen=True, kw_only=True, repr=False)
class Config:
    """A client's options, checked and frozen. Picklable; neither ``repr`` nor errors show secrets."""

    given: frozenset[str] = attrs.field(default=_UNKNOWN, eq=False)
    """The options that were set, rather than left to their default."""

    ROLE: ClassVar[str] = "client"
    RULES: ClassVar[tuple[Rule, ...]] = ()
    NOT_YET: ClassVar[tuple[NotYet, ...]] = ()

    def __attrs_post_init__(self) -> None:
        if self.given is _UNKNOWN:
            self._put("given", frozenset(each.name for each, value in self if value != each.convert(None)))
        for rule in self._rows("RULES"):
            self._obey(rule)
        for row in self._rows("NOT_YET"):
            self._refuse_missing(row)

    @classmethod
    def parse(cls, config: Mapping[str, object] | None = None, options: Mapping[str, object] | None = None) -> Self:
        """Build it from a mapping and keywords; dotted and snake_case names in both, a keyword wins.

        Values may be texts, as a properties file has them. None is the same as leaving the option out.

        Raises:
            UnknownOptionError: neither this client nor another one has an option of this name; names the nearest ones.
            UnsupportedFeatureError: this release does not support the setting yet.
            ConfigurationError: a value has a wrong type or range, two contradict each other, or the mapping would
                import code.
        """
        if config is not None and not isinstance(config, Mapping):
            raise ConfigurationError(
                f"expected a mapping of options as first argument, got {type(config).__name__}: pass options by name, as in bootstrap_servers=…"
                f"{'; ' + habit('topic_first') if cls.ROLE == 'consumer' else ''}")
        data, keywords = provided(config or {}, options or {})
        looked_up = {key: value for key, value in keywords.items() if value is not (options or {})[key]}
        written, spoken = _named(cls, data), _named(cls, keywords)
        values: dict[str, Any] = {**written, **spoken}
        parsed = cls(**values, given=frozenset(values))
        _check_imports(cls, values, (written.keys() - spoken.keys()) | _named(cls, looked_up).keys())
        note_other_defaults(cls.ROLE, {**data, **keywords}, parsed.given)
        return parsed

    @classmethod
    def fields(cls) -> tuple[Option, ...]:
        """Every option of this client, as declared."""
        return tuple(_catalog(cls).options.values())

    def __iter__(self) -> Iterator[tuple[Option, Any]]:
        """Each option with its value."""
        return ((each, getattr(self, each.name)) for each in self.fields())

    def describe(self) -> str:
        """One line per option: dotted name, value, and whether it was set or is the default. Secrets are hidden."""
        return "\n".join(
            f"{each.dotted} = {each.show(value)}{'' if each.name in self.given else '  (default)'}"
            for each, value in self
        )

    def __repr__(self) -> str:
        set_ = [each for each in self.fields() if each.name in self.given and hasattr(self, each.name)]  # one that is being made has not all
        return f"{type(self).__name__}({', '.join(f'{each.name}={each.show(getattr(self, each.name))}' for each in set_)})"

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def _rows(cls, table: str) -> Iterator[Any]:
        """The rows of *table* of this class and its bases, base classes first."""
        for each in reversed(cls.__mro__):
            yield from each.__dict__.get(table, ())

    def _obey(self, rule: Rule) -> None:
        if rule.holds(self):
            return
        options = _catalog(type(self)).options
        values = ", ".join(f"{name} = {options[name].show(getattr(self, name))}" for name in rule.options)
        for name, value in rule.yields.items():
            if name not in self.given and not rule.holds(self):
                self._put(name, value(self))
        if not rule.holds(self) and not self.given.isdisjoint(rule.options):
            raise ConfigurationError(f"{rule.law}; here {values}", option=rule.options[0])

    def _refuse_missing(self, row: NotYet) -> None:
        if row.option in self.given and row.asked(value := getattr(self, row.option)):
            shown = _catalog(type(self)).options[row.option].show(value)
            raise UnsupportedFeatureError(
                f"{row.option} = {shown}: this release does not support that yet. {row.instead}",
                option=row.option,
            )


def with_hidden_secrets(settings: Any) -> Any:
    """*settings* as a dict whose secrets are `Secret`, for the constructors of clients; what is no mapping as it is.

    A wrong option raises there, and reports of errors may have the local variables of each frame.
    """
    if not isinstance(settings, Mapping):
        return settings
    return {key: _as_secret(value) if is_private_url(value) or _is_secret(key) else value for key, value in settings.items()}


def _is_secret(key: object) -> bool:
    """Names of no option of ours, such as other clients' and misspelt ones, count by what they look like."""
    if not isinstance(key, str):
        return False
    own = [catalog.options[catalog.spellings[key]] for catalog in map(_catalog, _kinds_of_client(Config)) if key in catalog.spellings]
    return any(option.secret for option in own) if own else _SECRET_NAME.search(key) is not None


def _as_secret(value: object) -> object:
    if isinstance(value, str):
        return Secret(value)
    return SecretBytes(value) if isinstance(value, bytes) else value


class _Catalog(NamedTuple):
    options: Mapping[str, Option]
    spellings: Mapping[str, str]
    """Every way to write an option's name → the name of its attribute."""


_catalogs: Final[dict[type[Config], _Catalog]] = {}


def _catalog(cls: type[Config]) -> _Catalog:
    if cls not in _catalogs:
        options = [_of(field) for field in attrs.fields(cls) if _KEY in field.metadata]
        ways = [(way, o.name) for o in options for way in (o.dotted.replace(".", "_"), o.dotted, o.name)]
        _catalogs[cls] = _Catalog({each.name: each for each in options}, dict(ways))
    return _catalogs[cls]


def _named(cls: type[Config], source: Mapping[str, object]) -> dict[str, object]:
    """The settings under this client's names. Its own name wins over another client's; two spellings must agree."""
    ours: dict[str, tuple[str, object]] = {}
    theirs: dict[str, tuple[str, object]] = {}
    for key, value in source.items():
        settings = _settled(cls, key, value)
        into = ours if key in _catalog(cls).spellings else theirs
        for name, meant in settings:
            if meant is not None:  # the name was checked in any case
                _add(into, name, key, meant)
    return {name: meant for name, (_, meant) in {**theirs, **ours}.items()}


def _check_imports(cls: type[Config], values: Mapping[str, object], data: AbstractSet[str]) -> None:
    """Those of the *values* that are data import from allowed modules only; data allow none themselves."""
    options = _catalog(cls).options
    if imports.OPTION in data:
        raise ConfigurationError(f"{imports.OPTION} is set by the configuration that it is to limit: give it as a keyword argument, or set "
                                 f"{imports.VARIABLE} in the environment", option=imports.OPTION)
    allowed = imports.allowed_modules(options[imports.OPTION].convert(values.get(imports.OPTION))) if imports.OPTION in options else ()
    for name in sorted(data):
        if options[name].kind.imports:
            imports.check_imports(name, values[name], allowed)


def _add(into: dict[str, tuple[str, object]], name: str, key: str, meant: object) -> None:
    spelled, before = into.setdefault(name, (key, meant))
    if before is not meant and before != meant:  # NaN is not even itself
        raise ConfigurationError(f"{spelled} and {key} are the same option, set to two values: keep one", option=name)


def _settled(cls: type[Config], key: object, value: object) -> list[tuple[str, object]]:
    if not isinstance(key, str):
        raise ConfigurationError(f"expected an option name as str, such as 'bootstrap.servers', got {type(key).__name__}: {key!r}")
    settings = settle(cls.ROLE, key, value, _catalog(cls).spellings)
    if settings is None:
        raise _misplaced(cls, key) or unknown_option(cls, key)
    return settings


def _misplaced(cls: type[Config], key: str) -> UnknownOptionError | None:
    """The error for an option of another kind of client."""
    for other in _kinds_of_client(Config):
        name = _catalog(other).spellings.get(key)
        if name is not None:
            return UnknownOptionError(
                f"{key} is an option of the {other.ROLE}, not of the {cls.ROLE}: leave it out here", option=name
            )
    return None


def _kinds_of_client(base: type[Config]) -> Iterator[type[Config]]:
    for each in base.__subclasses__():
        yield each
        yield from _kinds_of_client(each)


def unknown_option(cls: type[Config], key: str) -> UnknownOptionError:
    """The error for an unknown name, with the most similar known ones."""
    ways = _catalog(cls).spellings
    alike = difflib.get_close_matches(key.replace(".", "_").lower(), [way for way in ways if "." not in way], n=3)
    nearest = tuple(dict.fromkeys(ways[way] for way in alike))
    dotted = "." in key
    shown = [_catalog(cls).options[name].dotted if dotted else name for name in nearest]
    hint = f"did you mean {' or '.join(shown)}?" if shown else f"help('pyclient.option_types.{cls.ROLE.title()}Options') lists all options"
    return UnknownOptionError(f"the {cls.ROLE} has no option {key!r}: {hint}", option=key, nearest=nearest)
