package main

import (
	"context"
	"errors"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secured does the steps of the secured matrix.
func secured(_ context.Context, _ lines.Arguments) {
	lines.EachScenario(securedSteps, func(err error) (int, bool) {
		var told *kerr.Error
		if errors.As(err, &told) {
			return int(told.Code), true
		}
		return 0, false
	})
}

func securedSteps(s lines.Secured) lines.Steps {
	return lines.Steps{
		"produce":     func(ctx context.Context) (int, error) { return securedProduce(ctx, s) },
		"read":        func(ctx context.Context) (int, error) { return securedRead(ctx, s, lines.Count) },
		"transaction": func(ctx context.Context) (int, error) { return securedTransact(ctx, s) },
		"read again":  func(ctx context.Context) (int, error) { return securedRead(ctx, s, lines.More) },
	}
}

// securedClient is set up as the page on security has it.
func securedClient(s lines.Secured, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(s.Bootstrap), kgo.DialTLSConfig(s.Tls()))
	if s.HasLogin() {
		auth := scram.Auth{User: s.Username, Pass: s.Password}
		mechanism := auth.AsSha512Mechanism()
		if s.Mechanism == "SCRAM-SHA-256" {
			mechanism = auth.AsSha256Mechanism()
		}
		options = append(options, kgo.SASL(mechanism))
	}
	made, err := kgo.NewClient(options...)
	lines.Fail(err)
	return made
}

func securedRecords(s lines.Secured, what string, count int) []*kgo.Record {
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = &kgo.Record{Topic: s.Topic, Value: s.Value(what, number)}
	}
	return records
}

func securedProduce(ctx context.Context, s lines.Secured) (int, error) {
	producer := securedClient(s, kgo.DisableIdempotentWrite(), kgo.RecordDeliveryTimeout(s.Patience()))
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil {
		return 0, err
	}
	results := producer.ProduceSync(ctx, securedRecords(s, "plain", lines.Count)...)
	return len(results), results.FirstErr()
}

func securedTransact(ctx context.Context, s lines.Secured) (int, error) {
	producer := securedClient(s, kgo.TransactionalID(s.Id))
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return 0, err
	}
	results := producer.ProduceSync(ctx, securedRecords(s, "transaction", lines.More)...)
	if err := results.FirstErr(); err != nil {
		return 0, err
	}
	return len(results), producer.EndTransaction(ctx, kgo.TryCommit)
}

func securedRead(ctx context.Context, s lines.Secured, count int) (int, error) {
	consumer := securedClient(s,
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	)
	defer consumer.Close()
	found := map[string]bool{}
	for len(found) < count {
		fetched := consumer.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return len(found), err
		}
		fetched.EachRecord(func(record *kgo.Record) { found[string(record.Value)] = true })
	}
	return len(found), consumer.CommitUncommittedOffsets(ctx)
}
