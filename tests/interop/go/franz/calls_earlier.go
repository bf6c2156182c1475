//go:build earlier

package main

import (
	"context"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
)

// calls makes the calls of the admin client that a release of two years ago has as well.
func calls(ctx context.Context, given lines.Arguments) {
	ctx, done := context.WithTimeout(ctx, 2*patience)
	defer done()
	asked := admin(given)
	table := &lines.Table{}
	value := "86400000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
	topics, err := asked.ListTopics(ctx)
	table.Add("ListTopics", err, topics.Error())
	_, err = asked.DescribeTopicConfigs(ctx, given.Topic)
	table.Add("DescribeTopicConfigs", err)
	_, err = asked.AlterTopicConfigs(ctx, set, given.Topic)
	table.Add("AlterTopicConfigs", err)
	grown, err := asked.UpdatePartitions(ctx, 5, given.Topic)
	table.Add("UpdatePartitions", err, grown.Error())
	_, err = asked.ListGroups(ctx)
	table.Add("ListGroups", err)
	described, err := asked.DescribeGroups(ctx, given.Group)
	table.Add("DescribeGroups", err, described.Error())
	lags, err := asked.Lag(ctx, given.Group)
	table.Add("Lag", err, lags.Error())
	gone, err := asked.DeleteGroups(ctx, given.Group)
	table.Add("DeleteGroups", err, gone.Error())
	deleted, err := asked.DeleteTopics(ctx, given.Topic)
	table.Add("DeleteTopics", err, deleted.Error())
	lines.Say(table)
}
