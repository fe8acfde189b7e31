"""Two answers, field by field. What may differ stands in `ALLOWED`, and nowhere else."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from tests.broker.conformance.allowed import ALLOWED, Allowance, Kind
from tests.broker.conformance.script import Plain

NOTHING: Final = (None, "", -1, 0)
"""Values that no renaming covers: absent on one side means absent on the other."""


@attrs.define
class Comparison:
    """The comparison of one run: renamed values keep their partner through it."""

    used: set[Allowance]
    """Gets the allowances that were needed."""
    _partners: dict[object, object] = attrs.field(factory=dict, init=False)
    _partners_back: dict[object, object] = attrs.field(factory=dict, init=False)

    def differences(self, api: Api, real: Plain, fake: Plain, path: str = "") -> Iterator[str]:
        """What differs and may not, one line each."""
        if isinstance(real, Mapping) and isinstance(fake, Mapping):
            for name in {**real, **fake}:
                yield from self._field(api, _joined(path, name), real.get(name), fake.get(name))
        elif isinstance(real, list) and isinstance(fake, list) and len(real) == len(fake):
            for left, right in zip(real, fake, strict=True):
                yield from self.differences(api, left, right, path)
        elif real != fake:
            yield f"{path or 'the answer'}: the broker says {_short(real)}, the model {_short(fake)}"

    def _field(self, api: Api, path: str, real: Plain, fake: Plain) -> Iterator[str]:
        allowance = allowance_for(api, path)
        if allowance is not None and self._allowed(allowance, real, fake):
            if real != fake:
                self.used.add(allowance)
            return
        if allowance is not None and allowance.kind in (Kind.UNORDERED, Kind.FEWER):
            real, fake = self._in_order(api, allowance, real, fake)
        yield from self.differences(api, real, fake, path)

    def _allowed(self, allowance: Allowance, real: Plain, fake: Plain) -> bool:
        match allowance.kind:
            case Kind.RENAMED:
                return self._are_partners(real, fake)
            case Kind.FREE:
                return (real in NOTHING) == (fake in NOTHING)
        return False

    def _are_partners(self, real: Any, fake: Any) -> bool:
        if isinstance(real, Mapping | list) or real in NOTHING or fake in NOTHING:
            return bool(real == fake)
        return bool(self._partners.setdefault(real, fake) == fake and self._partners_back.setdefault(fake, real) == real)

    def _in_order(self, api: Api, allowance: Allowance, real: Plain, fake: Plain) -> tuple[Plain, Plain]:
        if not isinstance(real, list) or not isinstance(fake, list):
            return real, fake
        if allowance.kind is Kind.FEWER:
            known = [item.get(allowance.key) for item in fake]
            real = [item for item in real if item.get(allowance.key) in known]
        if allowance.apart:
            real, fake = ([item for item in side if item.get(allowance.key) != allowance.apart] for side in (real, fake))
        left = sorted(real, key=lambda item: repr(self._lasting(api, item, self._partners)))
        right = sorted(fake, key=lambda item: repr(self._lasting(api, item, {each: each for each in self._partners.values()})))
        if (left != real) or (right != fake):
            self.used.add(allowance)
        return left, right

    def _lasting(self, api: Api, value: Plain, known: Mapping[object, object]) -> Plain:
        """With the partners of what is drawn at random, where they are known: what lists in any order are sorted by."""
        if isinstance(value, list):
            return [self._lasting(api, each, known) for each in value]
        if not isinstance(value, Mapping):
            return value
        return {name: known.get(each) if _is_renamed(api, name) else self._lasting(api, each, known) for name, each in value.items()}


def allowance_for(api: Api, path: str) -> Allowance | None:
    """The row that speaks of this field: one of the API, else one of all APIs."""
    rows = [row for row in ALLOWED if row.api in (None, api) and (path == row.field or path.endswith(f".{row.field}"))]
    return max(rows, key=lambda row: (row.api is not None, len(row.field)), default=None)


def _is_renamed(api: Api, name: str) -> bool:
    row = allowance_for(api, name)
    return row is not None and row.kind is Kind.RENAMED


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"
