"""Delegation tokens as brokers keep them (KIP-48)."""
from __future__ import annotations

import base64

import attrs


@attrs.frozen
class DelegationToken:
    """A token that stands for a user: a program that has it logs in by SCRAM as its owner, until it expires.

    Attributes:
        token_id: the user name to log in with (``sasl_plain_username``).
        owner: whom it stands for, as ACLs name principals, such as ``User:anna``.
        requester: who created it.
        renewers: who may renew it beside its owner.
        issued_ms, expires_ms: when it was created, and when it expires unless it is renewed, in ms since the epoch.
        max_ms: the time beyond which it cannot be renewed.
        hmac: the secret; ``repr`` does not show it.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = attrs.field(repr=lambda _: "b'***'")

    @property
    def password(self) -> str:
        """The password to log in with (``sasl_plain_password``): the secret in base64."""
        return base64.b64encode(self.hmac).decode()
