//go:build !earlier

package main

import (
	"strconv"
	"time"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

const (
	pause  = 5 * time.Millisecond
	atOnce = 20
)

// produceOn sends running numbers until its input ends, through every failure, and says which
// were acknowledged, and where.
func produceOn(given lines.Arguments) {
	made := safe(settings(given))
	made.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewAsyncProducer(given.Seeds(), made)
	lines.Fail(err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for sent := range producer.Successes() {
			lines.Say(lines.Acknowledged{
				Value: sent.Metadata.(string), Partition: sent.Partition, Offset: sent.Offset,
			})
		}
	}()
	go func() {
		for failed := range producer.Errors() {
			lines.Say(lines.Acknowledged{Value: failed.Msg.Metadata.(string), Error: failed.Error()})
		}
	}()
	told := lines.UntilTold()
	for number := 0; ; number++ {
		value := strconv.Itoa(number)
		select {
		case <-told:
			producer.AsyncClose()
			<-over
			return
		case producer.Input() <- &sarama.ProducerMessage{
			Topic: given.Topic, Partition: int32(number) % given.Partitions,
			Value: sarama.StringEncoder(value), Metadata: value,
		}:
		}
		if number%atOnce == 0 {
			time.Sleep(pause)
		}
	}
}

// commitOn commits growing offsets of partition 0 until its input ends, and says which were kept.
// It looks for the coordinator again after each failure: by itself sarama's admin client goes on
// asking a node that refuses connections.
func commitOn(given lines.Arguments) {
	through, told := client(given), lines.UntilTold()
	asked, err := sarama.NewClusterAdminFromClient(through)
	lines.Fail(err)
	for offset := int64(0); ; offset++ {
		select {
		case <-told:
			return
		default:
		}
		done := lines.Acknowledged{Offset: offset}
		at := map[int32]sarama.OffsetAndMetadata{0: {Offset: offset, LeaderEpoch: -1}}
		wanted := map[string]map[int32]sarama.OffsetAndMetadata{given.Topic: at}
		answer, err := asked.AlterConsumerGroupOffsets(given.Group, wanted, nil)
		if err == nil {
			err = none(answer.Errors[given.Topic][0])
		}
		if err != nil {
			done.Error = err.Error()
			_ = through.RefreshCoordinator(given.Group) // whose failure the next commit shows
		}
		lines.Say(done)
		time.Sleep(pause)
	}
}
