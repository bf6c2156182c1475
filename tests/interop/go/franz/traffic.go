package main

import (
	"context"
	"strconv"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause   = 5 * time.Millisecond
	atOnce  = 20
	waiting = 1_000
)

// produceOn sends running numbers until its input ends, through every failure, and says which
// were acknowledged, and where.
func produceOn(ctx context.Context, given lines.Arguments) {
	producer := client(given,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(waiting),
		kgo.ProducerLinger(2*time.Millisecond),
	)
	told := lines.UntilTold()
	for number := 0; ; number++ {
		select {
		case <-told:
			lines.Fail(producer.Flush(ctx))
			return
		default:
		}
		value := strconv.Itoa(number)
		record := &kgo.Record{
			Topic: given.Topic, Partition: int32(number) % given.Partitions, Value: []byte(value),
		}
		producer.Produce(ctx, record, func(sent *kgo.Record, err error) {
			done := lines.Acknowledged{Value: value, Partition: sent.Partition, Offset: sent.Offset}
			if err != nil {
				done.Error = err.Error()
			}
			lines.Say(done)
		})
		if number%atOnce == 0 {
			time.Sleep(pause)
		}
	}
}

// commitOn commits growing offsets of partition 0 until its input ends, and says which were kept.
func commitOn(ctx context.Context, given lines.Arguments) {
	asked, told := admin(given), lines.UntilTold()
	for offset := int64(0); ; offset++ {
		select {
		case <-told:
			return
		default:
		}
		at := kadm.Offsets{}
		at.Add(kadm.Offset{Topic: given.Topic, At: offset, LeaderEpoch: -1})
		done := lines.Acknowledged{Offset: offset}
		if err := asked.CommitAllOffsets(ctx, given.Group, at); err != nil {
			done.Error = err.Error()
		}
		lines.Say(done)
		time.Sleep(pause)
	}
}
