//go:build !earlier

package main

import (
	"errors"
	"time"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

// calls makes every call that sarama's ClusterAdmin offers once and says how each ended. The topic
// has three partitions with records, the group has committed offsets of it; both are gone afterwards.
func calls(given lines.Arguments) {
	asked := admin(given)
	table := &lines.Table{}
	ofTopics(asked, given, table)
	ofSettings(asked, given, table)
	ofReplicas(asked, given, table)
	ofGroups(asked, given, table)
	ofSecurity(asked, table)
	table.Add("DeleteTopic", asked.DeleteTopic(given.Topic))
	lines.Say(table)
}

func ofTopics(asked sarama.ClusterAdmin, given lines.Arguments, table *lines.Table) {
	one := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	table.Add("CreateTopic to validate", asked.CreateTopic(given.Topic+"-more", one, true))
	_, err := asked.ListTopics()
	table.Add("ListTopics", err)
	found, err := asked.DescribeTopics([]string{given.Topic})
	if err == nil {
		err = none(found[0].Err)
	}
	table.Add("DescribeTopics", err)
	table.Add("CreatePartitions to validate", asked.CreatePartitions(given.Topic, 9, nil, true))
	table.Add("CreatePartitions", asked.CreatePartitions(given.Topic, 5, nil, false))
	table.Add("DeleteRecords", asked.DeleteRecords(given.Topic, map[int32]int64{0: 1}))
	at := map[string]map[int32]int64{given.Topic: {0: sarama.OffsetNewest}}
	listed, err := asked.ListOffsets(at, &sarama.ListOffsetsOptions{})
	if err == nil {
		err = listed[given.Topic][0].Err
	}
	if errors.Is(err, sarama.ErrNoError) {
		err = nil
	}
	table.Add("ListOffsets", err)
}

func ofSettings(asked sarama.ClusterAdmin, given lines.Arguments, table *lines.Table) {
	value := "86400000"
	topic := sarama.ConfigResource{Type: sarama.TopicResource, Name: given.Topic}
	node := sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"}
	_, err := asked.DescribeConfig(topic)
	table.Add("DescribeConfig", err)
	_, err = asked.DescribeConfig(node)
	table.Add("DescribeConfig of a node", err)
	_, err = asked.DescribeConfigs([]*sarama.ConfigResource{&topic}, sarama.DescribeConfigsOptions{})
	table.Add("DescribeConfigs", err)
	plain := map[string]*string{"retention.ms": &value}
	table.Add("AlterConfig", asked.AlterConfig(sarama.TopicResource, given.Topic, plain, false))
	entries := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}
	altered := asked.IncrementalAlterConfig(sarama.TopicResource, given.Topic, entries, false)
	table.Add("IncrementalAlterConfig", altered)
}

func ofReplicas(asked sarama.ClusterAdmin, given lines.Arguments, table *lines.Table) {
	_, _, err := asked.DescribeCluster()
	table.Add("DescribeCluster", err)
	_, err = asked.Controller()
	table.Add("Controller", err)
	_, err = asked.DescribeLogDirs([]int32{1})
	table.Add("DescribeLogDirs", err)
	partitions := map[string][]int32{given.Topic: {0}}
	elected, err := asked.ElectLeaders(sarama.PreferredElection, partitions)
	if err == nil {
		code := elected[given.Topic][0].ErrorCode
		if code != sarama.ErrElectionNotNeeded {
			err = none(code)
		}
	}
	table.Add("ElectLeaders", err)
	targets := [][]int32{{1}, {1}, {1}, {1}, {1}}
	table.Add("AlterPartitionReassignments", asked.AlterPartitionReassignments(given.Topic, targets))
	for within := time.Now().Add(patience); time.Now().Before(within); time.Sleep(pollFor) {
		left, err := asked.ListPartitionReassignments(given.Topic, []int32{0, 1, 2, 3, 4})
		if err != nil || len(left[given.Topic]) == 0 {
			table.Add("ListPartitionReassignments", err)
			return
		}
	}
	table.Add("ListPartitionReassignments", errors.New("not within a minute"))
}

func ofGroups(asked sarama.ClusterAdmin, given lines.Arguments, table *lines.Table) {
	_, err := asked.ListConsumerGroups()
	table.Add("ListConsumerGroups", err)
	found, err := asked.DescribeConsumerGroups([]string{given.Group})
	if err == nil {
		err = none(found[0].Err)
	}
	table.Add("DescribeConsumerGroups", err)
	_, err = asked.Coordinator(given.Group)
	table.Add("Coordinator", err)
	at := map[string][]int32{given.Topic: {0}}
	_, err = asked.ListConsumerGroupOffsets(given.Group, at)
	table.Add("ListConsumerGroupOffsets", err)
	_, err = asked.ListConsumerGroupOffsetsBatch(map[string]map[string][]int32{given.Group: at, "nobody": nil})
	table.Add("ListConsumerGroupOffsetsBatch", err)
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{given.Topic: {0: {Offset: 1, LeaderEpoch: -1}}}
	answer, err := asked.AlterConsumerGroupOffsets(given.Group, wanted, nil)
	if err == nil {
		err = none(answer.Errors[given.Topic][0])
	}
	table.Add("AlterConsumerGroupOffsets", err)
	left, err := asked.RemoveMemberFromConsumerGroup(given.Group, []string{"nobody"})
	if err == nil {
		err = none(left.Members[0].Err)
	}
	table.Add("RemoveMemberFromConsumerGroup", err)
	table.Add("DeleteConsumerGroupOffset", asked.DeleteConsumerGroupOffset(given.Group, given.Topic, 0))
	table.Add("DeleteConsumerGroup", asked.DeleteConsumerGroup(given.Group))
}

func ofSecurity(asked sarama.ClusterAdmin, table *lines.Table) {
	what := sarama.Resource{
		ResourceType: sarama.AclResourceTopic, ResourceName: "x", ResourcePatternType: sarama.AclPatternLiteral,
	}
	rule := sarama.Acl{
		Principal: "User:x", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow,
	}
	table.Add("CreateACL", asked.CreateACL(what, rule))
	filter := sarama.AclFilter{
		ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	_, err := asked.ListAcls(filter)
	table.Add("ListAcls", err)
	_, err = asked.DeleteACL(filter, false)
	table.Add("DeleteACL", err)
}
