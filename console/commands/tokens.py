"""``barnabas tokens``: what kafka-delegation-tokens does, with ids instead of secrets as arguments.

A secret on the command line could be read by others on the machine; it is asked for at the
cluster, which tells it to the owner and the renewers of a token. Source: docs/spec/security.md §2
(S37) and §9 (S78).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.token_admin import DEFAULT_MS, DelegationToken
from barnabas.console.command_line.cluster_options import add_cluster_options, administer
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import print_json, print_table
from barnabas.console.groups.time_arguments import time_text
from barnabas.protocol.acl import principal_problem

COLUMNS: Final = ("TOKEN ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "AT LATEST")
_MS_MAX: Final = 2**63 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    making = add_command(commands, "create", "have a token made, and print it with its secret")
    making.add_argument(
        "--owner-principal", type=principal, metavar="User:NAME",
        help="who logs in with it (default: you)",
    )  # fmt: skip
    making.add_argument(
        "--renewer-principal", action="append", default=[], type=principal, metavar="User:NAME",
        help="may renew and end it as well; may be repeated",
    )  # fmt: skip
    making.add_argument(
        "--max-life-time-period", type=whole_number(1, _MS_MAX), default=DEFAULT_MS, metavar="MS",
        help="it cannot be renewed for longer (default: the longest that the nodes allow)",
    )  # fmt: skip
    listing = add_command(commands, "list", "show tokens: all that you may see, or of some owners")
    listing.add_argument(
        "--owner-principal", action="append", type=principal, metavar="User:NAME",
        help="those that this one owns, had made or may renew; may be repeated",
    )  # fmt: skip
    listing.add_argument("--show-secrets", action="store_true", help="print their secrets, too")
    renewing = add_command(commands, "renew", "have a token hold for longer, from now on")
    renewing.add_argument(
        "--renew-time-period", type=whole_number(0, _MS_MAX), default=DEFAULT_MS, metavar="MS",
        help="for how long (default: as the nodes have it)",
    )  # fmt: skip
    ending = add_command(commands, "expire", "have a token end")
    ending.add_argument(
        "--expiry-time-period", type=whole_number(0, _MS_MAX), default=DEFAULT_MS, metavar="MS",
        help="it holds for so long from now on (default: it ends at once)",
    )  # fmt: skip
    for sub in (renewing, ending):
        sub.add_argument("token_id", metavar="TOKEN-ID")
    for sub in (making, listing, renewing, ending):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised."""
    _COMMANDS[chosen.command](chosen)
    return 0


def principal(text: str) -> str:
    """A type for argparse: ``User:name``."""
    problem = principal_problem(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return text


def _create(chosen: argparse.Namespace) -> None:
    made = administer(
        chosen,
        lambda admin: admin.create_delegation_token(
            chosen.renewer_principal,
            owner=chosen.owner_principal,
            max_lifetime_ms=chosen.max_life_time_period,
        ),
    )
    _show(chosen, [made], has_secrets=True)


def _list(chosen: argparse.Namespace) -> None:
    owners = chosen.owner_principal
    found = administer(chosen, lambda admin: admin.describe_delegation_tokens(owners))
    _show(chosen, found, has_secrets=chosen.show_secrets)


def _renew(chosen: argparse.Namespace) -> None:
    async def renewed(admin: Admin) -> int:
        secret = await _secret(admin, chosen.token_id)
        return await admin.renew_delegation_token(secret, chosen.renew_time_period)

    _show_end(chosen, administer(chosen, renewed), "holds until")


def _expire(chosen: argparse.Namespace) -> None:
    async def ended(admin: Admin) -> int:
        secret = await _secret(admin, chosen.token_id)
        return await admin.expire_delegation_token(secret, chosen.expiry_time_period)

    _show_end(chosen, administer(chosen, ended), "ends at")


async def _secret(admin: Admin, token_id: str) -> bytes:
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise Failure(f"there is no token {token_id}, or it is not yours to see")


def _show_end(chosen: argparse.Namespace, ends_ms: int, what: str) -> None:
    if chosen.json:
        print_json({"tokenId": chosen.token_id, "expiryTimestamp": ends_ms})
    else:
        print(f"token {chosen.token_id} {what} {time_text(ends_ms)}")


def _show(
    chosen: argparse.Namespace, tokens: Sequence[DelegationToken], *, has_secrets: bool
) -> None:
    if chosen.json:
        print_json([_document(token, has_secrets=has_secrets) for token in tokens])
        return
    rows = [(*_row(token), *([token.password] if has_secrets else ())) for token in tokens]
    if rows:
        print_table((*COLUMNS, *(["SECRET"] if has_secrets else ())), rows)


def _row(token: DelegationToken) -> tuple[str, ...]:
    times = map(time_text, (token.issue_ms, token.expiry_ms, token.max_ms))
    return (
        token.token_id,
        token.owner,
        token.requester,
        ",".join(token.renewers) or "-",
        *times,
    )


def _document(token: DelegationToken, *, has_secrets: bool) -> Mapping[str, Any]:
    return {
        "tokenId": token.token_id,
        "owner": token.owner,
        "tokenRequester": token.requester,
        "renewers": token.renewers,
        "issueTimestamp": token.issue_ms,
        "expiryTimestamp": token.expiry_ms,
        "maxTimestamp": token.max_ms,
        **({"hmac": token.password} if has_secrets else {}),
    }


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "create": _create,
    "list": _list,
    "renew": _renew,
    "expire": _expire,
}
