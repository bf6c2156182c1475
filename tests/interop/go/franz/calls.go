//go:build !earlier

package main

import (
	"context"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// calls makes every call that kadm offers once and says how each ended. The topic has three
// partitions with records, the group has committed offsets of it; both are gone afterwards.
func calls(ctx context.Context, given lines.Arguments) {
	ctx, done := context.WithTimeout(ctx, 2*patience)
	defer done()
	asked := admin(given)
	table := &lines.Table{}
	ofTopics(ctx, asked, given, table)
	ofOffsets(ctx, asked, given, table)
	ofSettings(ctx, asked, given, table)
	ofReplicas(ctx, asked, given, table)
	ofGroups(ctx, asked, given, table)
	ofSecurity(ctx, asked, table)
	ofTransactions(ctx, asked, given, table)
	ofTheRest(ctx, asked, given, table)
	deleted, err := asked.DeleteTopics(ctx, given.Topic)
	table.Add("DeleteTopics", err, deleted.Error())
	lines.Say(table)
}

func places(given lines.Arguments) kadm.TopicsSet {
	found := kadm.TopicsSet{}
	found.Add(given.Topic, 0)
	return found
}

func ofTopics(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	_, err := asked.ListBrokers(ctx)
	table.Add("ListBrokers", err)
	_, err = asked.BrokerMetadata(ctx)
	table.Add("BrokerMetadata", err)
	_, err = asked.Metadata(ctx, given.Topic)
	table.Add("Metadata", err)
	topics, err := asked.ListTopics(ctx)
	table.Add("ListTopics", err, topics.Error())
	topics, err = asked.ListTopicsWithInternal(ctx)
	table.Add("ListTopicsWithInternal", err, topics.Error())
	validated, err := asked.ValidateCreateTopics(ctx, 1, 1, nil, given.Topic+"-more")
	table.Add("ValidateCreateTopics", err, validated.Error())
	created, err := asked.CreateTopics(ctx, 1, 1, nil, given.Topic+"-more")
	table.Add("CreateTopics", err, created.Error())
	_, err = asked.DeleteTopic(ctx, given.Topic+"-more")
	table.Add("DeleteTopic", err)
	grown, err := asked.ValidateCreatePartitions(ctx, 1, given.Topic)
	table.Add("ValidateCreatePartitions", err, grown.Error())
	grown, err = asked.ValidateUpdatePartitions(ctx, 9, given.Topic)
	table.Add("ValidateUpdatePartitions", err, grown.Error())
	grown, err = asked.CreatePartitions(ctx, 1, given.Topic)
	table.Add("CreatePartitions", err, grown.Error())
	grown, err = asked.UpdatePartitions(ctx, 5, given.Topic)
	table.Add("UpdatePartitions", err, grown.Error())
	// Nodes hear of the new partitions, and that they lead them, a moment later.
	for within := time.Now().Add(patience); time.Now().Before(within); time.Sleep(pollFor) {
		ends, err := asked.ListEndOffsets(ctx, given.Topic)
		if err == nil && ends.Error() == nil && len(ends[given.Topic]) == 5 {
			return
		}
	}
}

func ofOffsets(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	for name, ask := range map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"ListStartOffsets":         asked.ListStartOffsets,
		"ListEndOffsets":           asked.ListEndOffsets,
		"ListMaxTimestampOffsets":  asked.ListMaxTimestampOffsets,
		"ListCommittedOffsets":     asked.ListCommittedOffsets,
		"ListLocalLogStartOffsets": asked.ListLocalLogStartOffsets,
		"ListLatestRemoteOffsets":  asked.ListLatestRemoteOffsets,
	} {
		found, err := ask(ctx, given.Topic)
		table.Add(name, err, found.Error())
	}
	found, err := asked.ListOffsetsAfterMilli(ctx, 0, given.Topic)
	table.Add("ListOffsetsAfterMilli", err, found.Error())
	deleted, err := asked.DeleteRecords(ctx, kadm.Offsets{given.Topic: {0: {Topic: given.Topic, At: 1}}})
	table.Add("DeleteRecords", err, deleted.Error())
	var epochs kadm.OffsetForLeaderEpochRequest
	epochs.Add(given.Topic, 0, 0)
	_, err = asked.OffsetForLeaderEpoch(ctx, epochs)
	table.Add("OffsetForLeaderEpoch", err)
}

func ofSettings(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	value := "86400000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
	takeBack := []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "log.retention.ms"}}
	_, err := asked.DescribeTopicConfigs(ctx, given.Topic)
	table.Add("DescribeTopicConfigs", err)
	_, err = asked.DescribeBrokerConfigs(ctx, 1)
	table.Add("DescribeBrokerConfigs", err)
	_, err = asked.DescribeBrokerConfigs(ctx)
	table.Add("DescribeBrokerConfigs of all", err)
	one := func(name string, found kadm.AlterConfigsResponses, err error) {
		for _, each := range found {
			if err == nil {
				err = each.Err
			}
		}
		table.Add(name, err)
	}
	found, err := asked.ValidateAlterTopicConfigs(ctx, set, given.Topic)
	one("ValidateAlterTopicConfigs", found, err)
	found, err = asked.AlterTopicConfigs(ctx, set, given.Topic)
	one("AlterTopicConfigs", found, err)
	found, err = asked.ValidateAlterTopicConfigsState(ctx, set, given.Topic)
	one("ValidateAlterTopicConfigsState", found, err)
	found, err = asked.AlterTopicConfigsState(ctx, set, given.Topic)
	one("AlterTopicConfigsState", found, err)
	found, err = asked.ValidateAlterBrokerConfigs(ctx, takeBack, 1)
	one("ValidateAlterBrokerConfigs", found, err)
	found, err = asked.AlterBrokerConfigs(ctx, takeBack, 1)
	one("AlterBrokerConfigs", found, err)
	found, err = asked.ValidateAlterBrokerConfigsState(ctx, nil, 1)
	one("ValidateAlterBrokerConfigsState", found, err)
	found, err = asked.AlterBrokerConfigsState(ctx, nil, 1)
	one("AlterBrokerConfigsState", found, err)
	_, err = asked.ListConfigResources(ctx)
	table.Add("ListConfigResources", err)
}

func ofReplicas(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	_, err := asked.DescribeAllLogDirs(ctx, places(given))
	table.Add("DescribeAllLogDirs", err)
	_, err = asked.DescribeBrokerLogDirs(ctx, 1, nil)
	table.Add("DescribeBrokerLogDirs", err)
	where := kadm.AlterReplicaLogDirsReq{}
	where.Add("/nowhere", places(given))
	moved, err := asked.AlterBrokerReplicaLogDirs(ctx, 1, where)
	var first error
	moved.Each(func(one kadm.AlterReplicaLogDirsResponse) { first = one.Err })
	table.Add("AlterBrokerReplicaLogDirs", err, first)
	elected, err := asked.ElectLeaders(ctx, kadm.ElectPreferredReplica, places(given))
	table.Add("ElectLeaders", err, elected[given.Topic][0].Err)
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(given.Topic, 0, []int32{1})
	altered, err := asked.AlterPartitionAssignments(ctx, move)
	table.Add("AlterPartitionAssignments", err, altered.Error())
	for within := time.Now().Add(patience); time.Now().Before(within); time.Sleep(pollFor) {
		left, err := asked.ListPartitionReassignments(ctx, places(given))
		if err != nil || len(left.Sorted()) == 0 {
			table.Add("ListPartitionReassignments", err)
			return
		}
	}
	table.Add("ListPartitionReassignments", context.DeadlineExceeded)
}

func ofGroups(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	listed, err := asked.ListGroups(ctx)
	table.Add("ListGroups", err)
	_ = listed
	_, err = asked.ListGroups(ctx, "Empty")
	table.Add("ListGroups by state", err)
	_, err = asked.ListGroupsByType(ctx, []string{"classic"})
	table.Add("ListGroupsByType", err)
	described, err := asked.DescribeGroups(ctx, given.Group)
	table.Add("DescribeGroups", err, described.Error())
	lags, err := asked.Lag(ctx, given.Group)
	table.Add("Lag", err, lags.Error())
	table.Add("FindGroupCoordinators", asked.FindGroupCoordinators(ctx, given.Group).Error())
	fetched, err := asked.FetchOffsets(ctx, given.Group)
	table.Add("FetchOffsets", err, fetched.Error())
	fetched, err = asked.FetchOffsetsForTopics(ctx, given.Group, given.Topic)
	table.Add("FetchOffsetsForTopics", err, fetched.Error())
	table.Add("FetchManyOffsets", asked.FetchManyOffsets(ctx, given.Group, "nobody").Error())
	at := kadm.Offsets{given.Topic: {0: {Topic: given.Topic, At: 1, LeaderEpoch: -1}}}
	answers, err := asked.CommitOffsets(ctx, given.Group, at)
	table.Add("CommitOffsets", err, answers.Error())
	table.Add("CommitAllOffsets", asked.CommitAllOffsets(ctx, given.Group, at))
	left, err := asked.LeaveGroup(ctx, kadm.LeaveGroup(given.Group).InstanceIDs("nobody"))
	table.Add("LeaveGroup", err, left.Error())
	forgotten, err := asked.DeleteOffsets(ctx, given.Group, places(given))
	table.Add("DeleteOffsets", err, forgotten.Error())
	_, err = asked.DeleteGroup(ctx, given.Group)
	table.Add("DeleteGroup", err)
	gone, err := asked.DeleteGroups(ctx, given.Group)
	table.Add("DeleteGroups twice", err, gone.Error())
	_, err = asked.DescribeConsumerGroups(ctx, given.Group)
	table.Add("DescribeConsumerGroups", err)
	_, err = asked.DescribeShareGroups(ctx, given.Group)
	table.Add("DescribeShareGroups", err)
}

func ofSecurity(ctx context.Context, asked *kadm.Client, table *lines.Table) {
	rule := kadm.NewACLs().Topics("x").Operations(kadm.OpRead).
		ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:x").AllowHosts("*")
	created, err := asked.CreateACLs(ctx, rule)
	for _, one := range created {
		if err == nil {
			err = one.Err
		}
	}
	table.Add("CreateACLs", err)
	described, err := asked.DescribeACLs(ctx, rule)
	for _, one := range described {
		if err == nil {
			err = one.Err
		}
	}
	table.Add("DescribeACLs", err)
	deleted, err := asked.DeleteACLs(ctx, rule)
	for _, one := range deleted {
		if err == nil {
			err = one.Err
		}
	}
	table.Add("DeleteACLs", err)
	_, err = asked.DescribeUserSCRAMs(ctx)
	table.Add("DescribeUserSCRAMs", err)
	_, err = asked.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "x", Mechanism: kadm.ScramSha256}}, nil)
	table.Add("AlterUserSCRAMs", err)
	_, err = asked.DescribeClientQuotas(ctx, false, nil)
	table.Add("DescribeClientQuotas", err)
	_, err = asked.AlterClientQuotas(ctx, nil)
	table.Add("AlterClientQuotas", err)
	_, err = asked.CreateDelegationToken(ctx, kadm.CreateDelegationToken{MaxLifetime: time.Hour})
	table.Add("CreateDelegationToken", err)
	_, err = asked.DescribeDelegationTokens(ctx)
	table.Add("DescribeDelegationTokens", err)
}

func ofTransactions(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	producers, err := asked.DescribeProducers(ctx, places(given))
	for _, topic := range producers {
		for _, one := range topic.Partitions {
			if err == nil {
				err = one.Err
			}
		}
	}
	table.Add("DescribeProducers", err)
	_, err = asked.DescribeTransactions(ctx, "nobody")
	table.Add("DescribeTransactions", err)
	_, err = asked.ListTransactions(ctx, nil, nil)
	table.Add("ListTransactions", err)
	table.Add("FindTxnCoordinators", asked.FindTxnCoordinators(ctx, "nobody").Error())
}

func ofTheRest(ctx context.Context, asked *kadm.Client, given lines.Arguments, table *lines.Table) {
	versions, err := asked.ApiVersions(ctx)
	versions.Each(func(one kadm.BrokerApiVersions) {
		if err == nil {
			err = one.Err
		}
	})
	table.Add("ApiVersions", err)
	_, err = asked.UpdateFeatures(ctx, true)
	table.Add("UpdateFeatures", err)
	_, err = kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, client(given))
	table.Add("DescribeCluster", err)
}
