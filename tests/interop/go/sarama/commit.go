//go:build !earlier

package main

import (
	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

// commit is what an administrator does, for a group that is not its own.
func commit(given lines.Arguments) {
	at := map[int32]sarama.OffsetAndMetadata{}
	for partition, offset := range given.Offsets {
		at[partition] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{given.Topic: at}
	answer, err := admin(given).AlterConsumerGroupOffsets(given.Group, wanted, nil)
	lines.Fail(err)
	for _, partitions := range answer.Errors {
		for _, code := range partitions {
			lines.Fail(none(code))
		}
	}
}
