//go:build !earlier

package main

import (
	"context"
	"errors"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kgo"
)

const memberPoll = 100 * time.Millisecond

func init() { commands["member"] = member }

type event struct {
	Event      string     `json:"event"`
	At         float64    `json:"at"`
	Partitions []int32    `json:"partitions"`
	Records    [][2]int64 `json:"records"`
	Text       string     `json:"text"`
}

func tell(told event) {
	told.At = float64(time.Now().UnixMicro()) / 1e6
	lines.Say(told)
}

// member takes part in a group and tells what comes, goes and is read; see
// tests/harness/protocol_members.py. It ends with its input.
func member(ctx context.Context, given lines.Arguments) {
	telling := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			if name == "revoked" {
				tell(event{Event: "revoking"})
				time.Sleep(time.Duration(given.SlowMs) * time.Millisecond)
			}
			tell(event{Event: name, Partitions: places[given.Topic]})
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.RebalanceTimeout(time.Duration(given.MaxPollMs) * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(telling("assigned")),
		kgo.OnPartitionsRevoked(telling("revoked")),
		kgo.OnPartitionsLost(telling("lost")),
	}
	if given.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.HeartbeatInterval(heartbeat), kgo.SessionTimeout(6*time.Second))
	}
	if given.Instance != "" {
		options = append(options, kgo.InstanceID(given.Instance))
	}
	consumer := client(given, options...)
	told := lines.UntilTold()
	tell(event{Event: "started"})
	for !isClosed(told) {
		step(ctx, consumer)
		consumer.AllowRebalance()
	}
	consumer.CloseAllowingRebalance()
	tell(event{Event: "closed"})
}

func isClosed(told <-chan struct{}) bool {
	select {
	case <-told:
		return true
	default:
		return false
	}
}

func step(ctx context.Context, consumer *kgo.Client) {
	within, done := context.WithTimeout(ctx, memberPoll)
	defer done()
	fetched := consumer.PollRecords(within, 200)
	for _, failed := range fetched.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			tell(event{Event: "error", Text: failed.Err.Error()})
		}
	}
	var read [][2]int64
	fetched.EachRecord(func(record *kgo.Record) {
		read = append(read, [2]int64{int64(record.Partition), record.Offset})
	})
	if len(read) == 0 {
		return
	}
	tell(event{Event: "read", Records: read})
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		tell(event{Event: "error", Text: "commit: " + err.Error()})
	}
}
