"""The matrix of rights, asked of a node of ours and of Apache Kafka 3.9.1, and compared.

Every API, asked by a user for each way in which entries may stand, by who has not logged in, by a
super user and by a node. What differs is named and explained in one table, or is a bug.
Source: docs/spec/security.md §3 (the matrix, S39 to S56); tests/authorizer/kafka_differences.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from barnabas.broker.authorizer.authorizer import NODES_MAY
from barnabas.broker.handlers.authorization import MATRIX
from barnabas.protocol import api
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    EVERYBODY,
    AclBinding,
    Operation,
    Permission,
    ResourceType,
)
from barnabas.protocol.codec.wire import schema_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import api_versions
from tests.authorizer.asked_apis import ASKED, GROUP, ID, TOPIC, Asked
from tests.authorizer.asked_more import CREATED, LISTINGS, MORE, SERVED_BY_KAFKA
from tests.authorizer.asked_unserved import UNSERVED, RawAsked
from tests.authorizer.compared_answers import CLOSED, codes_shown, renamed, shown
from tests.authorizer.compared_cases import OTHER_GROUP, OTHER_TOPIC, UNKNOWN_ID, Case, cases
from tests.authorizer.compared_servers import (
    NODE_USER,
    ROOT_USER,
    Refused,
    Server,
    Session,
    compared_servers,
)
from tests.authorizer.guarded_node import DENIALS, allow, everything
from tests.authorizer.kafka_differences import (
    CONSUMER_GROUPS,
    DIFFERENCES,
    LISTED,
    NODE,
    Cell,
    Difference,
    explained,
)
from tests.harness.raw_connection import Closed

pytestmark = pytest.mark.kafka

QUESTIONS: Final = (*ASKED, *MORE, *LISTINGS, *SERVED_BY_KAFKA, CREATED)
CASES: Final = tuple(cases())
LIKE_A_NODE: Final = "like_node"
"""A user of Kafka with the rights that a node of ours has."""
STRANGER: Final = "stranger"


def test_every_row_of_the_matrix_is_compared() -> None:
    asked = {int(api.spec_of(type(one.request(TOPIC))).key) for one in QUESTIONS}
    asked |= {one.key for one in UNSERVED}
    of_logins = {api.ApiKey.SASL_HANDSHAKE, api.ApiKey.SASL_AUTHENTICATE, api.ApiKey.API_VERSIONS}
    assert MATRIX.keys() - asked <= of_logins


class Compared:
    """Both servers, and a connection to each for everybody who asks."""

    def __init__(self, ours: Server, kafka: Server) -> None:
        self.ours = ours
        self.kafka = kafka
        self.used: set[str] = set()
        """Differences that explained a cell."""
        self.asked: set[str] = set()
        self._sessions: dict[tuple[str, str], Session] = {}
        self.offered = {server.name: self._offered(server) for server in (ours, kafka)}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def cell(self, asked: Asked, who: str) -> Cell:
        """One question, asked of both."""
        request = asked.request(asked.topic)
        key = api.spec_of(type(request)).key
        return Cell(
            asked.label,
            who,
            self.answer(self.ours, who, request, asked.version),
            self.answer(self.kafka, who, request, asked.version),
            key in self.offered[self.ours.name],
        )

    def answer(self, server: Server, who: str, request: Any, version: int) -> Any:
        """What is compared of an answer, or CLOSED."""
        return self._asked(server, who, lambda link: shown(link.ask(request, version)))

    def raw(self, server: Server, who: str, asked: RawAsked) -> Any:
        """An answer's bytes without their correlation id, or CLOSED."""
        return self._asked(
            server, who, lambda link: link.ask_raw(asked.key, asked.version, asked.body)[4:]
        )

    def _asked(self, server: Server, who: str, ask: Callable[[Session], Any]) -> Any:
        place = (server.name, who)
        if place not in self._sessions:
            self._sessions[place] = self._open(server, who)
        try:
            return ask(self._sessions[place])
        except Closed:
            self._sessions.pop(place).close()
            return CLOSED

    def _open(self, server: Server, who: str) -> Session:
        if who == STRANGER:
            return server.as_stranger()
        if who == NODE:
            return server.as_node() if server is self.ours else server.as_user(LIKE_A_NODE)
        return server.as_user(who)

    def _offered(self, server: Server) -> set[int]:
        with server.as_user(ROOT_USER) as session:
            answer = session.ask(api_versions.ApiVersionsRequest(), 2)
        return {one.api_key for one in answer.api_keys}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    entries = [entry for case in CASES for entry in case.entries]
    for user in (ROOT_USER, NODE_USER):
        entries += (_denied(entry) for entry in everything(f"User:{user}"))
    entries += [*_rights_of_a_node(), *_of_everybody()]
    users = [*(case.user for case in CASES), LIKE_A_NODE]
    with compared_servers(tmp_path_factory.mktemp("rights"), users, entries) as (ours, kafka):
        both = Compared(ours, kafka)
        yield both
        both.close()


def _denied(entry: AclBinding) -> AclBinding:
    return AclBinding(entry.pattern, entry.acl._replace(permission=Permission.DENY))


def _rights_of_a_node() -> Iterator[AclBinding]:
    for kind, operations in NODES_MAY.items():
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
        for operation in operations:
            yield allow(kind, name, operation, principal=f"User:{LIKE_A_NODE}")


SHARED: Final = "shared"
BARRED: Final = "barred"


def _of_everybody() -> Iterator[AclBinding]:
    """What all may read, who has not logged in included; and what nobody may, whatever he has."""
    topic = ResourceType.TOPIC
    yield allow(topic, SHARED, Operation.READ, principal=EVERYBODY)
    yield allow(topic, BARRED, Operation.ALL, principal="User:nothing")
    yield allow(topic, BARRED, Operation.READ, principal=EVERYBODY, permission=Permission.DENY)


def concerned(asked: Asked) -> Iterator[str]:
    """Who is asked about: all whose entries can change the answer, and who needs none."""
    kinds = {right.resource_type for right in asked.needs}
    yield from (case.user for case in CASES if case.kind is None or case.kind in kinds)
    yield from (STRANGER, ROOT_USER, NODE)


@pytest.mark.parametrize("asked", QUESTIONS, ids=[one.label for one in QUESTIONS])
def test_every_cell_is_answered_as_kafka_answers_it_or_explained(
    compared: Compared, asked: Asked
) -> None:
    unexplained = []
    compared.asked.add(asked.label)
    for who in concerned(asked):
        cell = compared.cell(asked, who)
        if cell.ours == cell.kafka:
            continue
        difference = explained(cell)
        if difference is None:
            unexplained.append(f"{who}: {cell.ours}, and Kafka {cell.kafka}")
        else:
            compared.used.add(difference.name)
    assert not unexplained, "\n".join(unexplained[:5])


ABOUT_TOPICS: Final = tuple(
    one for one in (*ASKED, *MORE) if one.request("a") != one.request("b") and not one.is_internal
)


@pytest.mark.parametrize("asked", ABOUT_TOPICS, ids=[one.label for one in ABOUT_TOPICS])
@pytest.mark.parametrize("topic", [SHARED, BARRED])
def test_what_is_said_of_everybody_holds_for_each_and_for_strangers(
    compared: Compared, topic: str, asked: Asked
) -> None:
    """S41, S42: no implication of a denial; the topics are not there, which only some are told."""
    unexplained = []
    for who in ("nothing", "topic_0", STRANGER, ROOT_USER):
        request = asked.request(topic)
        answers = [
            compared.answer(server, who, request, asked.version)
            for server in (compared.ours, compared.kafka)
        ]
        cell = Cell(asked.label, who, answers[0], answers[1], is_served=True)
        if answers[0] != answers[1] and explained(cell) is None:
            unexplained.append(f"{who}: {answers[0]}, and Kafka {answers[1]}")
    assert not unexplained, "\n".join(unexplained[:5])


@pytest.mark.parametrize("asked", UNSERVED, ids=[one.label for one in UNSERVED])
def test_what_has_no_class_of_ours_is_closed_or_answered_as_kafka_answers_it(
    compared: Compared, asked: RawAsked
) -> None:
    compared.asked.add(asked.label)
    for who in ("nothing", "all", STRANGER, ROOT_USER):
        ours = compared.raw(compared.ours, who, asked)
        if asked.key in compared.offered["ours"]:
            assert ours == compared.raw(compared.kafka, who, asked)
        else:
            assert ours == CLOSED


def test_nothing_is_offered_that_kafka_does_not_offer_but_what_its_tool_for_groups_asks(
    compared: Compared,
) -> None:
    assert compared.offered["ours"] - compared.offered["kafka"] == {
        api.ApiKey.LIST_CONFIG_RESOURCES
    }


# -- what exists -----------------------------------------------------------------------------------

PAIRS: Final = {
    ResourceType.TOPIC: (TOPIC, OTHER_TOPIC),
    ResourceType.GROUP: (GROUP, OTHER_GROUP),
    ResourceType.TRANSACTIONAL_ID: (ID, UNKNOWN_ID),
}
"""A name that is there, and one that is not."""


def named(request: Any, old: str, new: str) -> Any:
    """A request with another name in it."""
    if isinstance(request, list | tuple):
        return [named(one, old, new) for one in request]
    try:
        fields = schema_of(type(request)).fields
    except AttributeError:
        return new if request == old else request
    made = copy.copy(request)
    for field in fields:
        setattr(made, field.name, named(getattr(request, field.name), old, new))
    return made


def pairs() -> Iterator[tuple[Asked, ResourceType]]:
    for asked in (*ASKED, *MORE):
        request = asked.request(TOPIC)
        for kind, (there, _) in PAIRS.items():
            held = asked.group if kind is ResourceType.GROUP else there
            if not asked.is_internal and named(request, held, "other") != request:
                yield asked, kind


FOUND: Final = tuple(pairs())


@pytest.mark.parametrize(
    ("asked", "kind"), FOUND, ids=[f"{asked.label}, {kind.word}" for asked, kind in FOUND]
)
def test_who_is_denied_is_not_told_what_exists(
    compared: Compared, asked: Asked, kind: ResourceType
) -> None:
    """S54: the same answer for a name that is there and for one that is not; Kafka's too."""
    there, missing = PAIRS[kind]
    held = asked.group if kind is ResourceType.GROUP else there
    told = []
    for case in CASES:
        if case.kind not in (None, kind) or not is_denied(asked, case):
            continue
        for server in (compared.ours, compared.kafka):
            answers = [
                compared.answer(
                    server, case.user, named(asked.request(TOPIC), held, name), asked.version
                )
                for name in (there, missing)
            ]
            is_refused = any(codes_shown(one) & DENIALS for one in answers)
            if is_refused and answers[0] != renamed(answers[1], missing, there):
                told.append(f"{server.name}, {case.user}: {answers}")
    assert not told, "\n".join(told[:5])


@pytest.mark.parametrize(
    ("asked", "kind"), FOUND, ids=[f"{asked.label}, {kind.word}" for asked, kind in FOUND]
)
def test_who_may_do_all_is_told_of_what_is_absent_as_kafka_tells_it(
    compared: Compared, asked: Asked, kind: ResourceType
) -> None:
    held = asked.group if kind is ResourceType.GROUP else PAIRS[kind][0]
    request = named(asked.request(TOPIC), held, "absent")
    ours, kafka = (
        compared.answer(server, "all", request, asked.version)
        for server in (compared.ours, compared.kafka)
    )
    if ours != kafka:
        assert explained(Cell(asked.label, "all", ours, kafka, is_served=True)), (ours, kafka)


def is_denied(asked: Asked, case: Case) -> bool:
    return bool(asked.expected(lambda right: case.may(right, asked)))


# -- listeners -------------------------------------------------------------------------------------


def test_who_has_not_logged_in_is_served_nothing_where_a_login_is_asked_for(
    compared: Compared,
) -> None:
    """S20: on both the connection is closed, whatever is asked."""
    for asked in QUESTIONS:
        for server in (compared.ours, compared.kafka):
            with server.before_login() as session, pytest.raises(Closed):
                session.ask(asked.request(asked.topic), asked.version)


def test_a_node_is_no_super_user_and_a_broker_of_kafka_is(compared: Compared) -> None:
    """S55."""
    denied = 0
    for asked in (*ASKED, *MORE):
        request = asked.request(asked.topic)
        codes = codes_shown(compared.answer(compared.ours, NODE, request, asked.version))
        denied += bool(codes & DENIALS)
        with compared.kafka.as_node() as session:
            answer = shown(session.ask(request, asked.version)) if _is_answered(asked) else None
        assert not codes_shown(answer) & DENIALS
    assert denied > 40


def _is_answered(asked: Asked) -> bool:
    """By Kafka: it closes the connection on the others."""
    unanswered = {"create acls", "produce of a transaction without an id", LISTED, *CONSUMER_GROUPS}
    return asked.label not in unanswered


def test_no_user_is_let_in_on_the_nodes_listener(compared: Compared) -> None:
    """S71: Kafka lets in whom its mechanisms know."""
    with compared.kafka.as_user_among_nodes("all"):
        pass
    for user in (ROOT_USER, "all"):
        with pytest.raises(Refused) as refusal:
            compared.ours.as_user_among_nodes(user)
        assert refusal.value.args == (ErrorCode.SASL_AUTHENTICATION_FAILED,)


# -- the table of differences ----------------------------------------------------------------------


def test_no_difference_is_listed_in_vain(compared: Compared) -> None:
    """Runs last: says nothing where only some questions were asked."""
    everything_asked = {one.label for one in QUESTIONS} | {one.label for one in UNSERVED}
    unused: list[Difference] = [one for one in DIFFERENCES if one.name not in compared.used]
    assert not unused or compared.asked < everything_asked
