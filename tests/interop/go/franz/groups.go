package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pollFor   = 100 * time.Millisecond
	heartbeat = 300 * time.Millisecond
)

var balancers = map[string]kgo.GroupBalancer{
	"range":       kgo.RangeBalancer(),
	"roundrobin":  kgo.RoundRobinBalancer(),
	"sticky":      kgo.StickyBalancer(),
	"cooperative": kgo.CooperativeStickyBalancer(),
}

// owned is what the group gave to this member; rebalances change it from another goroutine.
type owned struct {
	mutex      sync.Mutex
	partitions map[int32]bool
}

func (o *owned) set(topics map[string][]int32, mine bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, partitions := range topics {
		for _, partition := range partitions {
			if mine {
				o.partitions[partition] = true
			} else {
				delete(o.partitions, partition)
			}
		}
	}
}

func (o *owned) list() []int32 {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	found := []int32{}
	for partition := range o.partitions {
		found = append(found, partition)
	}
	return found
}

// join is a member: it polls and commits when it is told to, and leaves when its input ends.
func join(ctx context.Context, given lines.Arguments) {
	mine := &owned{partitions: map[int32]bool{}}
	loses := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { mine.set(lost, false) }
	options := []kgo.Opt{
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.Balancers(balancers[given.Balancer]),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(heartbeat),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			mine.set(got, true)
		}),
		kgo.OnPartitionsRevoked(loses),
		kgo.OnPartitionsLost(loses),
	}
	if given.Instance != "" {
		options = append(options, kgo.InstanceID(given.Instance))
	}
	member := client(given, options...)
	lines.EachOrder(func(order string) {
		answer := lines.Polled{}
		if order == "commit" {
			if err := member.CommitUncommittedOffsets(ctx); err != nil {
				answer.Error = err.Error()
			}
		} else {
			poll(ctx, member, &answer)
		}
		answer.Assigned = mine.list()
		lines.Say(answer)
	})
	member.Close() // leaves, unless it is static
}

func poll(ctx context.Context, member *kgo.Client, answer *lines.Polled) {
	within, done := context.WithTimeout(ctx, pollFor)
	defer done()
	fetched := member.PollFetches(within)
	for _, failed := range fetched.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			answer.Error = fmt.Sprintf("%s-%d: %v", failed.Topic, failed.Partition, failed.Err)
		}
	}
	fetched.EachRecord(func(record *kgo.Record) {
		answer.Records = append(answer.Records, received(record))
	})
}

func groups(ctx context.Context, given lines.Arguments) {
	found, err := admin(given).ListGroups(ctx)
	lines.Fail(err)
	lines.Say(found.Groups())
}

func describe(ctx context.Context, given lines.Arguments) {
	found, err := admin(given).DescribeGroups(ctx, given.Group)
	lines.Fail(err)
	group := found[given.Group]
	lines.Fail(group.Err)
	instances := []string{}
	for _, member := range group.Members {
		if member.InstanceID != nil {
			instances = append(instances, *member.InstanceID)
		}
	}
	lines.Say(map[string]any{
		"state": group.State, "protocol": group.Protocol, "member_count": len(group.Members), "instances": instances,
	})
}

func remove(ctx context.Context, given lines.Arguments) {
	left, err := admin(given).LeaveGroup(ctx, kadm.LeaveGroup(given.Group).InstanceIDs(given.Instance))
	lines.Fail(err)
	lines.Fail(left.Error())
}

func committed(ctx context.Context, given lines.Arguments) {
	found, err := admin(given).FetchOffsets(ctx, given.Group)
	lines.Fail(err)
	lines.Fail(found.Error())
	offsets := map[int32]int64{}
	found.Each(func(one kadm.OffsetResponse) { offsets[one.Partition] = one.At })
	lines.Say(offsets)
}

func commit(ctx context.Context, given lines.Arguments) {
	lines.Fail(admin(given).CommitAllOffsets(ctx, given.Group, wanted(given)))
}

func wanted(given lines.Arguments) kadm.Offsets {
	offsets := kadm.Offsets{}
	for partition, offset := range given.Offsets {
		offsets.Add(kadm.Offset{Topic: given.Topic, Partition: partition, At: offset, LeaderEpoch: -1})
	}
	return offsets
}

func deleteRecords(ctx context.Context, given lines.Arguments) {
	found, err := admin(given).DeleteRecords(ctx, wanted(given))
	lines.Fail(err)
	lines.Fail(found.Error())
	starts := map[int32]int64{}
	found.Each(func(one kadm.DeleteRecordsResponse) { starts[one.Partition] = one.LowWatermark })
	lines.Say(starts)
}

func offsets(ctx context.Context, given lines.Arguments) {
	asked := admin(given)
	first, err := asked.ListStartOffsets(ctx, given.Topic)
	lines.Fail(err)
	end, err := asked.ListEndOffsets(ctx, given.Topic)
	lines.Fail(err)
	at, err := asked.ListOffsetsAfterMilli(ctx, given.TimestampMs, given.Topic)
	lines.Fail(err)
	found := at[given.Topic][given.Partition]
	if found.Timestamp < 0 {
		found.Offset = -1 // kadm puts the end where there is none
	}
	lines.Say([]int64{
		first[given.Topic][given.Partition].Offset, end[given.Topic][given.Partition].Offset, found.Offset,
	})
}
