package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

const pollMax = 1_000

// member keeps what a group's session has at the moment; sarama calls it from its goroutines.
type member struct {
	topic    string
	messages chan *sarama.ConsumerMessage
	mutex    sync.Mutex
	session  sarama.ConsumerGroupSession
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.messages <- message:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *member) current() sarama.ConsumerGroupSession {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.session
}

func (m *member) assigned() []int32 {
	if session := m.current(); session != nil {
		return session.Claims()[m.topic]
	}
	return []int32{}
}

// poll hands out what has come; what is handed out counts as read.
func (m *member) poll(answer *lines.Polled) {
	for over := time.After(pollFor); len(answer.Records) < pollMax; {
		select {
		case message := <-m.messages:
			if session := m.current(); session != nil {
				session.MarkMessage(message, "")
			}
			answer.Records = append(answer.Records, received(message))
		case <-over:
			return
		}
	}
}

var balancers = map[string]sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange(),
	"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky":     sarama.NewBalanceStrategySticky(),
}

// join is a member: it polls and commits when it is told to, and leaves when its input ends.
func join(given lines.Arguments) {
	made := settings(given)
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[given.Balancer]}
	group, err := sarama.NewConsumerGroup(given.Seeds(), given.Group, made)
	lines.Fail(err)
	mine := &member{topic: given.Topic, messages: make(chan *sarama.ConsumerMessage)}
	ctx, leave := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{given.Topic}, mine)
			if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				lines.Fail(err)
			}
		}
	}()
	lines.EachOrder(func(order string) {
		answer := lines.Polled{}
		if order == "commit" {
			if session := mine.current(); session != nil {
				session.Commit()
			} else {
				answer.Error = "no session to commit in"
			}
		} else {
			mine.poll(&answer)
		}
		select {
		case failed := <-group.Errors():
			answer.Error = failed.Error()
		default:
		}
		answer.Assigned = mine.assigned()
		lines.Say(answer)
	})
	leave()
	<-over
	lines.Fail(group.Close())
}

func groups(given lines.Arguments) {
	found, err := admin(given).ListConsumerGroups()
	lines.Fail(err)
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	lines.Say(names)
}

func describe(given lines.Arguments) {
	found, err := admin(given).DescribeConsumerGroups([]string{given.Group})
	lines.Fail(err)
	lines.Fail(none(found[0].Err))
	instances := []string{}
	for _, one := range found[0].Members {
		if one.GroupInstanceId != nil {
			instances = append(instances, *one.GroupInstanceId)
		}
	}
	lines.Say(map[string]any{
		"state": found[0].State, "protocol": found[0].Protocol, "member_count": len(found[0].Members),
		"instances": instances,
	})
}

// none turns Kafka's code for no error into none.
func none(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

func committed(given lines.Arguments) {
	found, err := admin(given).ListConsumerGroupOffsets(given.Group, nil)
	lines.Fail(err)
	lines.Fail(none(found.Err))
	offsets := map[int32]int64{}
	for _, partitions := range found.Blocks {
		for partition, block := range partitions {
			lines.Fail(none(block.Err))
			offsets[partition] = block.Offset
		}
	}
	lines.Say(offsets)
}

func deleteRecords(given lines.Arguments) {
	lines.Fail(admin(given).DeleteRecords(given.Topic, given.Offsets))
	lines.Say(given.Offsets) // sarama does not tell what the cluster answered
}

func offsets(given lines.Arguments) {
	asked := client(given)
	found := []int64{}
	for _, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, given.TimestampMs} {
		offset, err := asked.GetOffset(given.Topic, given.Partition, at)
		lines.Fail(err)
		found = append(found, offset)
	}
	lines.Say(found)
}
