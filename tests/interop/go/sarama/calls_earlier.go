//go:build earlier

package main

import (
	"errors"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

// calls makes the calls of the admin client that a release of two years ago has as well.
func calls(given lines.Arguments) {
	asked := admin(given)
	table := &lines.Table{}
	value := "86400000"
	_, err := asked.ListTopics()
	table.Add("ListTopics", err)
	_, err = asked.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: given.Topic})
	table.Add("DescribeConfig", err)
	plain := map[string]*string{"retention.ms": &value}
	table.Add("AlterConfig", asked.AlterConfig(sarama.TopicResource, given.Topic, plain, false))
	table.Add("CreatePartitions", asked.CreatePartitions(given.Topic, 5, nil, false))
	_, err = asked.ListConsumerGroups()
	table.Add("ListConsumerGroups", err)
	_, err = asked.DescribeConsumerGroups([]string{given.Group})
	table.Add("DescribeConsumerGroups", err)
	table.Add("DeleteConsumerGroup", asked.DeleteConsumerGroup(given.Group))
	table.Add("DeleteTopic", asked.DeleteTopic(given.Topic))
	lines.Say(table)
}

// What needs an admin client that commits for a group, or members in transactions, which came later.
func produceOn(lines.Arguments) { lines.Fail(errors.New("not in this release")) }
func commitOn(lines.Arguments)  { lines.Fail(errors.New("not in this release")) }
func commit(lines.Arguments)    { lines.Fail(errors.New("not in this release")) }
func copyOn(lines.Arguments)    { lines.Fail(errors.New("not in this release")) }
func fence(lines.Arguments)     { lines.Fail(errors.New("not in this release")) }
