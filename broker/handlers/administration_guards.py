"""What stands before the APIs of administrators and of other nodes.

Source: docs/spec/security.md §3 (the matrix; S54: what only the controller serves asks that first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from barnabas.protocol.acl import CLUSTER_NAME, ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    leader_and_isr,
    list_config_resources,
    list_partition_reassignments,
    stop_replica,
    update_features,
    update_metadata,
)

from .alter_group_configs import GROUP
from .call import Answer, Call, Handler
from .cooperative import Turn
from .describe_configs import TOPIC
from .guards import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_ACTION,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DENIED,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    Guard,
    GuardContext,
    Right,
    Steps,
    afterwards,
    changed,
    merged,
    served,
    split,
    whole,
)

TOPIC_CODE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_CODE: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_CODE: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_ID: Final = bytes(16)
SETTINGS_SINCE: Final = 5
"""CreateTopics: from this version on the settings of a new topic are told."""
IDS_SINCE: Final = 6
"""DeleteTopics: from this version on topics may go by id."""
NODE_TYPES: Final = (4, 8)
"""Of settings: a broker's, and those of its loggers."""


# -- topics --------------------------------------------------------------------------------------


def create_topics_guard(serve: Handler, context: GuardContext) -> Handler:
    """Create on the cluster or on each topic; its settings are shown by DescribeConfigs."""

    def handle(call: Call) -> Answer:
        if not context.is_controller():
            return serve(call)
        return served(_create_topics(call, serve, context))

    return handle


def _create_topics(call: Call, serve: Handler, context: GuardContext) -> Steps:
    request: create_topics.CreateTopicsRequest = call.request
    refused: list[create_topics.TopicResult] = []
    if not context.may(call, CREATE_CLUSTER, is_told=False):
        # A name that stands there twice is refused for that, whoever asks.
        counts = Counter(topic.name for topic in request.topics)
        found = yield from split(call, context, CREATE_TOPIC, request.topics, _name)
        refused = [
            create_topics.TopicResult(
                name=topic.name, error_code=TOPIC_CODE, error_message=DENIED, configs=[]
            )
            for topic in found.denied
            if counts[topic.name] == 1
        ]
        twice = [topic for topic in found.denied if counts[topic.name] > 1]
        request.topics = [*found.permitted, *twice]
        if refused and not request.topics:
            return create_topics.CreateTopicsResponse(topics=refused)

    def hide_settings(answer: create_topics.CreateTopicsResponse) -> Steps:
        results, turn = list(refused), Turn()
        for result in answer.topics:
            results.append(_shown(call, context, result))
            if turn.is_over():
                yield
        return changed(answer, topics=results)

    return afterwards(serve(call), hide_settings)


def _shown(
    call: Call, context: GuardContext, result: create_topics.TopicResult
) -> create_topics.TopicResult:
    """What came of a topic, without its settings for who may not see them."""
    if (
        call.version < SETTINGS_SINCE
        or result.error_code
        or context.may(call, DESCRIBE_TOPIC_CONFIGS, result.name, is_told=False)
    ):
        return result
    hidden: create_topics.TopicResult = changed(
        result,
        topic_config_error_code=TOPIC_CODE,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )
    return hidden


def _name(entry: Any) -> str:
    name: str = entry.name
    return name


def delete_topics_guard(serve: Handler, context: GuardContext) -> Handler:
    """Delete on each topic; who names it by id must be allowed to Describe it to learn its name."""

    def handle(call: Call) -> Answer:
        if not context.is_controller():
            return serve(call)
        return served(_delete_topics(call, serve, context))

    return handle


def _delete_topics(call: Call, serve: Handler, context: GuardContext) -> Steps:
    request: delete_topics.DeleteTopicsRequest = call.request
    if call.version < IDS_SINCE:
        names = yield from split(call, context, DELETE_TOPIC, request.topic_names, str)
        request.topic_names = names.permitted
        refused = [_not_deleted(name) for name in names.denied]
        is_empty = not names.permitted
    else:
        topics, refused = yield from _deletable(call, context)
        request.topics = topics
        is_empty = not topics
    if refused and is_empty:
        return delete_topics.DeleteTopicsResponse(responses=refused)

    def add(answer: delete_topics.DeleteTopicsResponse) -> Any:
        return changed(answer, responses=[*refused, *answer.responses])

    return merged(serve(call), add) if refused else serve(call)


def _deletable(call: Call, context: GuardContext) -> Any:
    """The topics that may be deleted, or whose deletion makes no sense, and the refusals."""
    names = context.metadata.snapshot.names
    permitted, refused, turn = [], [], Turn()
    for topic in call.request.topics:
        if turn.is_over(3):
            yield
        by_id = topic.name is None
        name = names.get(topic.topic_id) if by_id else topic.name
        if name is None or (not by_id and topic.topic_id != NO_ID):
            permitted.append(topic)  # refused there: an unknown id (100), or name and id (42)
        elif by_id and not context.may(call, DESCRIBE_TOPIC, name):
            refused.append(_not_deleted(None, topic.topic_id))
        elif not context.may(call, DELETE_TOPIC, name):
            refused.append(_not_deleted(name, topic.topic_id))
        else:
            permitted.append(topic)
    return permitted, refused


def _not_deleted(name: str | None, topic_id: bytes = NO_ID) -> delete_topics.TopicResult:
    return delete_topics.TopicResult(
        name=name, topic_id=topic_id, error_code=TOPIC_CODE, error_message=DENIED
    )


def create_partitions_guard(serve: Handler, context: GuardContext) -> Handler:
    """Alter on each topic."""

    def handle(call: Call) -> Answer:
        if not context.is_controller():
            return serve(call)
        return served(_create_partitions(call, serve, context))

    return handle


def _create_partitions(call: Call, serve: Handler, context: GuardContext) -> Steps:
    request: create_partitions.CreatePartitionsRequest = call.request
    counts = Counter(topic.name for topic in request.topics)
    found = yield from split(call, context, ALTER_TOPIC, request.topics, _name)
    refused = [
        create_partitions.TopicResult(name=topic.name, error_code=TOPIC_CODE, error_message=DENIED)
        for topic in found.denied
        if counts[topic.name] == 1
    ]
    if not refused:
        return serve(call)
    twice = [topic for topic in found.denied if counts[topic.name] > 1]
    request.topics = [*found.permitted, *twice]
    if not request.topics:
        return create_partitions.CreatePartitionsResponse(results=refused)

    def add(answer: create_partitions.CreatePartitionsResponse) -> Any:
        return changed(answer, results=[*refused, *answer.results])

    return merged(serve(call), add)


# -- settings ------------------------------------------------------------------------------------


def _resources_guard(
    topic_right: Right,
    group_right: Right,
    cluster_right: Right,
    *,
    results: str,
    refused: Callable[[Any, ErrorCode], Any],
    response: Callable[..., Any],
    node_types: Collection[int] = NODE_TYPES,
) -> Guard:
    """Of topics by ``topic_right``, groups by ``group_right``, ``node_types`` by the last one."""

    def steps(call: Call, serve: Handler, context: GuardContext) -> Steps:
        resources = call.request.resources
        refusals, left = [], []
        for kind, right, code in (
            (TOPIC, topic_right, TOPIC_CODE),
            (GROUP, group_right, GROUP_CODE),
        ):
            named = [one for one in resources if one.resource_type == kind]
            found = yield from split(call, context, right, named, lambda one: one.resource_name)
            refusals += [refused(one, code) for one in found.denied]
            left += found.permitted
        of_nodes = [one for one in resources if one.resource_type in node_types]
        if of_nodes and not context.may(call, cluster_right, count=len(of_nodes)):
            refusals += [refused(one, CLUSTER_CODE) for one in of_nodes]
        else:
            left += of_nodes
        if not refusals:
            return serve(call)
        # Settings of other things there are none, which is no secret.
        left += [one for one in resources if one.resource_type not in (TOPIC, GROUP, *node_types)]
        if not left:
            return response(**{results: refusals})
        call.request.resources = left

        def add(answer: Any) -> Any:
            return changed(answer, **{results: [*refusals, *getattr(answer, results)]})

        return merged(serve(call), add)

    def guard(serve: Handler, context: GuardContext) -> Handler:
        return lambda call: served(steps(call, serve, context))

    return guard


describe_configs_guard: Final = _resources_guard(
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    results="results",
    refused=lambda one, code: describe_configs.Result(
        error_code=code,
        error_message=DENIED,
        resource_type=one.resource_type,
        resource_name=one.resource_name,
        configs=[],
    ),
    response=describe_configs.DescribeConfigsResponse,
)
alter_configs_guard: Final = _resources_guard(
    ALTER_TOPIC_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_CLUSTER_CONFIGS,
    results="responses",
    refused=lambda one, code: alter_configs.ResourceResult(
        error_code=code,
        error_message=DENIED,
        resource_type=one.resource_type,
        resource_name=one.resource_name,
    ),
    response=alter_configs.AlterConfigsResponse,
    node_types=(NODE_TYPES[0],),  # loggers are no matter of AlterConfigs, whoever asks: 42
)
incremental_alter_configs_guard: Final = _resources_guard(
    ALTER_TOPIC_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_CLUSTER_CONFIGS,
    results="responses",
    refused=lambda one, code: incremental_alter_configs.ResourceResult(
        error_code=code,
        error_message=DENIED,
        resource_type=one.resource_type,
        resource_name=one.resource_name,
    ),
    response=incremental_alter_configs.IncrementalAlterConfigsResponse,
)


def _no_resources(_: Call) -> list_config_resources.ListConfigResourcesResponse:
    return list_config_resources.ListConfigResourcesResponse(
        error_code=CLUSTER_CODE, config_resources=[]
    )


list_config_resources_guard: Final = whole(DESCRIBE_CLUSTER_CONFIGS, _no_resources)


# -- the cluster ---------------------------------------------------------------------------------


def describe_cluster_guard(serve: Handler, context: GuardContext) -> Handler:
    """Anybody; what may be done with the cluster is told to those who may Describe it."""

    def handle(call: Call) -> Answer:
        if not call.request.include_cluster_authorized_operations:
            return serve(call)

        def tell(answer: describe_cluster.DescribeClusterResponse) -> Any:
            operations = cluster_operations(call, context)
            return changed(answer, cluster_authorized_operations=operations)

        return merged(serve(call), tell)

    return handle


def cluster_operations(call: Call, context: GuardContext) -> int:
    """The bits of what the peer may do with the cluster; none for who may not Describe it."""
    if not context.may(call, DESCRIBE_CLUSTER, is_told=False):
        return 0
    return context.authorizer.operations(call.peer, ResourceType.CLUSTER, CLUSTER_NAME)


def _no_log_dirs(call: Call) -> describe_log_dirs.DescribeLogDirsResponse:
    return describe_log_dirs.DescribeLogDirsResponse(error_code=CLUSTER_CODE, results=[])


def _not_elected(call: Call) -> elect_leaders.ElectLeadersResponse:
    topics = call.request.topic_partitions or ()
    return elect_leaders.ElectLeadersResponse(
        error_code=CLUSTER_CODE,
        replica_election_results=[
            elect_leaders.TopicResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=index, error_code=CLUSTER_CODE, error_message=DENIED
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _not_reassigned(
    call: Call,
) -> alter_partition_reassignments.AlterPartitionReassignmentsResponse:
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_CODE,
        error_message=DENIED,
        responses=[
            alter_partition_reassignments.TopicResult(
                name=topic.name,
                partitions=[
                    alter_partition_reassignments.PartitionResult(
                        partition_index=one.partition_index,
                        error_code=CLUSTER_CODE,
                        error_message=DENIED,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in call.request.topics
        ],
    )


def _not_moved(call: Call) -> alter_replica_log_dirs.AlterReplicaLogDirsResponse:
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            alter_replica_log_dirs.TopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.PartitionResult(
                        partition_index=index, error_code=CLUSTER_CODE
                    )
                    for index in topic.partitions
                ],
            )
            for directory in call.request.dirs
            for topic in directory.topics
        ]
    )


def _no_reassignments(_: Call) -> list_partition_reassignments.ListPartitionReassignmentsResponse:
    return list_partition_reassignments.ListPartitionReassignmentsResponse(
        error_code=CLUSTER_CODE, error_message=DENIED, topics=[]
    )


def _no_features(_: Call) -> update_features.UpdateFeaturesResponse:
    return update_features.UpdateFeaturesResponse(
        error_code=CLUSTER_CODE, error_message=DENIED, results=[]
    )


describe_log_dirs_guard: Final = whole(DESCRIBE_CLUSTER, _no_log_dirs)
elect_leaders_guard: Final = whole(ALTER_CLUSTER, _not_elected)
reassign_guard: Final = whole(ALTER_CLUSTER, _not_reassigned)
list_reassignments_guard: Final = whole(DESCRIBE_CLUSTER, _no_reassignments)
alter_log_dirs_guard: Final = whole(ALTER_CLUSTER, _not_moved)
update_features_guard: Final = whole(ALTER_CLUSTER, _no_features)


# -- access control, quotas, users ---------------------------------------------------------------


def _no_acls(_: Call) -> describe_acls.DescribeAclsResponse:
    return describe_acls.DescribeAclsResponse(
        error_code=CLUSTER_CODE, error_message=DENIED, resources=[]
    )


def _acls_not_created(call: Call) -> create_acls.CreateAclsResponse:
    refusal = create_acls.Result(error_code=CLUSTER_CODE, error_message=DENIED)
    return create_acls.CreateAclsResponse(results=[refusal] * len(call.request.creations))


def _acls_not_deleted(call: Call) -> delete_acls.DeleteAclsResponse:
    refusal = delete_acls.FilterResult(
        error_code=CLUSTER_CODE, error_message=DENIED, matching_acls=[]
    )
    return delete_acls.DeleteAclsResponse(filter_results=[refusal] * len(call.request.filters))


def _no_quotas(_: Call) -> describe_client_quotas.DescribeClientQuotasResponse:
    return describe_client_quotas.DescribeClientQuotasResponse(
        error_code=CLUSTER_CODE, error_message=DENIED, entries=None
    )


def _quotas_not_altered(call: Call) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.EntryResult(
                error_code=CLUSTER_CODE,
                error_message=DENIED,
                entity=[
                    alter_client_quotas.EntityResult(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
            for entry in call.request.entries
        ]
    )


def _no_users(call: Call) -> Any:
    # Kafka leaves the names out; clients read the code at the top.
    refusal = describe_user_scram_credentials.Result(
        user="", error_code=CLUSTER_CODE, error_message=DENIED, credential_infos=[]
    )
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        error_code=CLUSTER_CODE,
        error_message=DENIED,
        results=[refusal] * len(call.request.users or ()),
    )


def _users_not_altered(call: Call) -> Any:
    named = [*call.request.deletions, *call.request.upsertions]
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.Result(
                user=name, error_code=CLUSTER_CODE, error_message=DENIED
            )
            for name in dict.fromkeys(one.name for one in named)
        ]
    )


describe_acls_guard: Final = whole(DESCRIBE_CLUSTER, _no_acls)
create_acls_guard: Final = whole(ALTER_CLUSTER, _acls_not_created)
delete_acls_guard: Final = whole(ALTER_CLUSTER, _acls_not_deleted)
describe_quotas_guard: Final = whole(DESCRIBE_CLUSTER_CONFIGS, _no_quotas)
alter_quotas_guard: Final = whole(ALTER_CLUSTER_CONFIGS, _quotas_not_altered)
describe_users_guard: Final = whole(DESCRIBE_CLUSTER, _no_users)


def alter_users_guard(serve: Handler, context: GuardContext) -> Handler:
    """Alter on the cluster; but who is not the controller says that first."""
    guarded = whole(ALTER_CLUSTER, _users_not_altered)(serve, context)

    def handle(call: Call) -> Answer:
        return guarded(call) if context.is_controller() else serve(call)

    return handle


# -- between nodes -------------------------------------------------------------------------------


def _between_nodes(response: Callable[..., Any], **fields: Any) -> Guard:
    return whole(CLUSTER_ACTION, lambda _: response(error_code=CLUSTER_CODE, **fields))


leader_and_isr_guard: Final = _between_nodes(leader_and_isr.LeaderAndIsrResponse)
stop_replica_guard: Final = _between_nodes(stop_replica.StopReplicaResponse, partition_errors=[])
update_metadata_guard: Final = _between_nodes(update_metadata.UpdateMetadataResponse)
controlled_shutdown_guard: Final = _between_nodes(
    controlled_shutdown.ControlledShutdownResponse, remaining_partitions=[]
)
alter_partition_guard: Final = _between_nodes(alter_partition.AlterPartitionResponse, topics=[])
allocate_producer_ids_guard: Final = _between_nodes(
    allocate_producer_ids.AllocateProducerIdsResponse
)
