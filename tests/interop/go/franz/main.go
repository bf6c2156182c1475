// The commands that tests give to franz-go; see package lines for what goes in and out.
package main

import (
	"context"
	"fmt"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var commands = map[string]func(context.Context, lines.Arguments){
	"create":         create,
	"produce":        produce,
	"join":           join,
	"groups":         groups,
	"describe":       describe,
	"remove":         remove,
	"committed":      committed,
	"commit":         commit,
	"offsets":        offsets,
	"read":           read,
	"delete-records": deleteRecords,
	"calls":          calls,
	"produce-on":     produceOn,
	"commit-on":      commitOn,
	"copy":           copyOn,
	"fence":          fence,
	"login":          login,
	"secured":        secured,
}

func main() {
	name, given := lines.Command()
	command, found := commands[name]
	if !found {
		lines.Fail(fmt.Errorf("no command %s", name))
	}
	command(context.Background(), given)
}

func client(given lines.Arguments, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(given.Seeds()...))...)
	lines.Fail(err)
	return made
}

func admin(given lines.Arguments) *kadm.Client { return kadm.NewClient(client(given)) }

func create(ctx context.Context, given lines.Arguments) {
	_, err := admin(given).CreateTopic(ctx, given.Partitions, given.Factor, nil, given.Topic)
	lines.Fail(err)
}

// byWish sends a record where it says, and one that says nothing where the default would.
func byWish(usual kgo.Partitioner) kgo.Partitioner {
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		choose := usual.ForTopic(topic)
		return func(record *kgo.Record, count int) int {
			if record.Partition >= 0 {
				return int(record.Partition)
			}
			return choose.Partition(record, count)
		}
	})
}

func produce(ctx context.Context, given lines.Arguments) {
	producer := client(given,
		kgo.ProducerBatchCompression(codecs[given.Codec]),
		kgo.RecordPartitioner(byWish(kgo.StickyKeyPartitioner(nil))),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	defer producer.Close()
	var records []*kgo.Record
	for _, one := range lines.Records() {
		record := &kgo.Record{Topic: given.Topic, Partition: one.Partition, Key: one.Key, Value: one.Value}
		if one.TimestampMs >= 0 {
			record.Timestamp = time.UnixMilli(one.TimestampMs)
		}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	lines.Fail(producer.ProduceSync(ctx, records...).FirstErr())
}

func read(ctx context.Context, given lines.Arguments) {
	asked := admin(given)
	firsts, err := asked.ListStartOffsets(ctx, given.Topic)
	lines.Fail(err)
	ends, err := asked.ListEndOffsets(ctx, given.Topic)
	lines.Fail(err)
	at, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for partition, start := range given.Starts {
		if start == lines.Beginning {
			start = firsts[given.Topic][partition].Offset
		}
		at[partition] = kgo.NewOffset().At(start)
		if end := ends[given.Topic][partition].Offset; start < end {
			left[partition] = end
		}
	}
	reader := client(given,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: at}),
		kgo.KeepControlRecords(),
	)
	defer reader.Close()
	for len(left) > 0 {
		fetched := reader.PollFetches(ctx)
		lines.Fail(fetched.Err())
		fetched.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				lines.Say(received(record))
			}
			if end, waits := left[record.Partition]; waits && record.Offset+1 >= end {
				delete(left, record.Partition)
			}
		})
	}
}

func received(record *kgo.Record) lines.Record {
	found := lines.Record{
		Partition:   record.Partition,
		Offset:      record.Offset,
		TimestampMs: record.Timestamp.UnixMilli(),
		Key:         record.Key,
		Value:       record.Value,
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return found
}
