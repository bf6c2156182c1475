package main

import (
	"context"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	atATime = 40
	timeout = 30 * time.Second
)

// copier is one of a group that copies a topic, in transactions that commit the group's offsets.
type copier struct {
	given   lines.Arguments
	session *kgo.GroupTransactSession
}

// copyOn makes the steps it is told, and leaves its group when its input ends.
//
// "copy" reads, writes and commits; "abort" aborts what it wrote; "open" leaves the transaction
// open, which "end" commits.
func copyOn(ctx context.Context, given lines.Arguments) {
	mine := &owned{partitions: map[int32]bool{}}
	loses := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { mine.set(lost, false) }
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(given.Seeds()...),
		kgo.TransactionalID(given.Id),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.Balancers(balancers[given.Balancer]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.HeartbeatInterval(heartbeat),
		kgo.SessionTimeout(timeout),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			mine.set(got, true)
		}),
		kgo.OnPartitionsRevoked(loses),
		kgo.OnPartitionsLost(loses),
	)
	lines.Fail(err)
	copying := copier{given, session}
	lines.EachOrder(func(order string) {
		answer := lines.Copied{Id: given.Id}
		if err := copying.do(ctx, order, &answer); err != nil {
			answer.Error = err.Error()
		}
		answer.Assigned = mine.list()
		lines.Say(answer)
	})
	session.Close()
}

func (c *copier) do(ctx context.Context, order string, answer *lines.Copied) error {
	if order != "end" {
		if err := c.begin(ctx, answer); err != nil || answer.Read == 0 || order == "open" {
			return err
		}
	}
	var err error
	answer.Committed, err = c.session.End(ctx, kgo.TransactionEndTry(order != "abort"))
	return err
}

// begin a transaction with what came within a moment; with nothing there is none.
func (c *copier) begin(ctx context.Context, answer *lines.Copied) error {
	within, done := context.WithTimeout(ctx, pollFor)
	defer done()
	records := c.session.PollRecords(within, atATime).Records()
	if len(records) == 0 {
		return nil
	}
	if err := c.session.Begin(); err != nil {
		return err
	}
	answer.Read = len(records)
	copies := make([]*kgo.Record, len(records))
	for at, record := range records {
		copies[at] = &kgo.Record{Topic: c.given.Target, Partition: record.Partition, Key: record.Key, Value: record.Value}
	}
	return c.session.ProduceSync(ctx, copies...).FirstErr()
}

// fence takes a transactional id over from whoever has it, and aborts a transaction of its own.
func fence(ctx context.Context, given lines.Arguments) {
	producer := client(given, kgo.TransactionalID(given.Id))
	defer producer.Close()
	lines.Fail(producer.BeginTransaction())
	lines.Fail(producer.ProduceSync(ctx, &kgo.Record{Topic: given.Target, Value: []byte("fence")}).FirstErr())
	lines.Fail(producer.EndTransaction(ctx, kgo.TryAbort))
}
