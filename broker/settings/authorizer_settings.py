"""Whether access is controlled, and whom nothing is forbidden.

Source: docs/spec/security.md §3 (S39).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.acl import ANONYMOUS, principal_problem
from barnabas.protocol.settings import ConfigError, setting

ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
UNLISTED: Final = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings:
    """Who may do what, where access control lists do not say so."""

    class_name: str = setting(
        CLASS_NAME,
        "",
        f"{ACL_AUTHORIZER} switches access control lists on; empty: everybody may do everything",
        choices=("", ACL_AUTHORIZER),
    )
    super_users: str | None = setting(
        SUPER_USERS, None, "principals that may do everything: User:alice;User:bob"
    )
    everyone_if_unlisted: bool | None = setting(
        UNLISTED, None, "whether everybody may use what no entry is about; unset: no"
    )

    @property
    def is_on(self) -> bool:
        """Whether access is controlled."""
        return bool(self.class_name)

    @property
    def allows_unlisted(self) -> bool:
        """Whether everybody may use what no entry is about."""
        return bool(self.everyone_if_unlisted)

    @property
    def super_user_names(self) -> tuple[str, ...]:
        """As ``User:alice``; raises ConfigError for what is no principal."""
        names = [name.strip() for name in (self.super_users or "").split(";")]
        problems = [
            f"{SUPER_USERS}: {problem}"
            for name in names
            if name and (problem := principal_problem(name)) is not None
        ]
        if problems:
            raise ConfigError(*problems)
        return tuple(filter(None, names))


def check_authorizer(settings: AuthorizerSettings, *, proves_nodes: bool) -> None:
    """Raises ConfigError where access would be less controlled than the settings say.

    ``proves_nodes`` says whether the inter-broker listener asks for a proof.
    """
    super_users = settings.super_user_names
    if not settings.is_on:
        promised = [
            name
            for name, is_given in (
                (SUPER_USERS, bool(super_users)),
                (UNLISTED, settings.everyone_if_unlisted is False),
            )
            if is_given
        ]
        if promised:
            raise ConfigError(
                *(
                    f"{name}: promises access control, but {CLASS_NAME} is empty"
                    for name in promised
                )
            )
    elif not proves_nodes and ANONYMOUS not in super_users:
        raise ConfigError(
            f"{CLASS_NAME}: needs a cluster.secret: without one nodes cannot prove that they are "
            "nodes, and would be denied"
        )
