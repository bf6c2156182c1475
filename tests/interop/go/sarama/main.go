// The commands that tests give to sarama; see package lines for what goes in and out.
package main

import (
	"fmt"
	"time"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

const (
	patience  = 60 * time.Second
	pollFor   = 100 * time.Millisecond
	heartbeat = 300 * time.Millisecond
	session   = 60 * time.Second // its own 10 s pass on a busy machine
	retries   = 300
	backoff   = 100 * time.Millisecond
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var commands = map[string]func(lines.Arguments){
	"create":         create,
	"produce":        produce,
	"join":           join,
	"groups":         groups,
	"describe":       describe,
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
	command(given)
}

// settings for a version of Kafka, by which sarama chooses what it sends; the newest it knows
// unless the test says one.
func settings(given lines.Arguments) *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	if given.Version != "" {
		version, err := sarama.ParseKafkaVersion(given.Version)
		lines.Fail(err)
		made.Version = version
	}
	made.Producer.Return.Successes = true
	made.Consumer.Return.Errors = true
	made.Consumer.MaxWaitTime = pollFor // a close waits for the fetch that is under way
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Session.Timeout = session
	made.Consumer.Group.Heartbeat.Interval = heartbeat
	made.Consumer.Group.Rebalance.Retry.Backoff = backoff
	made.Consumer.Group.InstanceId = given.Instance
	return made
}

func client(given lines.Arguments) sarama.Client {
	made, err := sarama.NewClient(given.Seeds(), settings(given))
	lines.Fail(err)
	return made
}

func admin(given lines.Arguments) sarama.ClusterAdmin {
	made, err := sarama.NewClusterAdmin(given.Seeds(), settings(given))
	lines.Fail(err)
	return made
}

func create(given lines.Arguments) {
	wanted := &sarama.TopicDetail{NumPartitions: given.Partitions, ReplicationFactor: given.Factor}
	lines.Fail(admin(given).CreateTopic(given.Topic, wanted, false))
}

// byWish sends a record where it says, and one that says nothing where the default would.
type byWish struct{ usual sarama.Partitioner }

func (b byWish) Partition(message *sarama.ProducerMessage, count int32) (int32, error) {
	if wanted := message.Metadata.(int32); wanted >= 0 {
		return wanted, nil
	}
	return b.usual.Partition(message, count)
}

func (b byWish) RequiresConsistency() bool { return true }

// safe makes a producer idempotent where the version has that, and patient.
func safe(made *sarama.Config) *sarama.Config {
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Retry.Max = retries
	made.Producer.Retry.Backoff = backoff
	made.Metadata.Retry.Max = retries
	made.Metadata.Retry.Backoff = backoff
	if made.Version.IsAtLeast(sarama.V0_11_0_0) {
		made.Producer.Idempotent = true
		made.Net.MaxOpenRequests = 1
	}
	return made
}

func produce(given lines.Arguments) {
	made := safe(settings(given))
	made.Producer.Compression = codecs[given.Codec]
	made.Producer.Partitioner = func(topic string) sarama.Partitioner {
		return byWish{sarama.NewHashPartitioner(topic)}
	}
	producer, err := sarama.NewSyncProducer(given.Seeds(), made)
	lines.Fail(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, one := range lines.Records() {
		message := &sarama.ProducerMessage{Topic: given.Topic, Metadata: one.Partition}
		if one.Key != nil {
			message.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			message.Value = sarama.ByteEncoder(one.Value)
		}
		if one.TimestampMs >= 0 {
			message.Timestamp = time.UnixMilli(one.TimestampMs)
		}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	lines.Fail(producer.SendMessages(messages))
}

func read(given lines.Arguments) {
	asked := client(given)
	consumer, err := sarama.NewConsumerFromClient(asked)
	lines.Fail(err)
	defer consumer.Close()
	for partition, start := range given.Starts {
		first, err := asked.GetOffset(given.Topic, partition, sarama.OffsetOldest)
		lines.Fail(err)
		end, err := asked.GetOffset(given.Topic, partition, sarama.OffsetNewest)
		lines.Fail(err)
		if start == lines.Beginning {
			start = first
		}
		if start >= end {
			continue
		}
		reader, err := consumer.ConsumePartition(given.Topic, partition, start)
		lines.Fail(err)
		lines.Fail(readTo(reader, end))
		lines.Fail(reader.Close())
	}
}

func readTo(reader sarama.PartitionConsumer, end int64) error {
	for late := time.After(patience); ; {
		select {
		case message := <-reader.Messages():
			lines.Say(received(message))
			if message.Offset+1 >= end {
				return nil
			}
		case failed := <-reader.Errors():
			return failed
		case <-late:
			return fmt.Errorf("the end does not come: %d", end)
		}
	}
}

func received(message *sarama.ConsumerMessage) lines.Record {
	found := lines.Record{
		Partition:   message.Partition,
		Offset:      message.Offset,
		TimestampMs: message.Timestamp.UnixMilli(),
		Key:         message.Key,
		Value:       message.Value,
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	return found
}
