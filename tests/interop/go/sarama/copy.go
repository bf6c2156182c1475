//go:build !earlier

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

const atATime = 40

// portion of a partition: the claim waits until it is over, and so does the next rebalance. What was
// not committed has to be read again, which takes a new session.
type portion struct {
	session sarama.ConsumerGroupSession
	first   *sarama.ConsumerMessage
	claim   sarama.ConsumerGroupClaim
	over    chan bool
}

// copier is one of a group that copies a topic, in transactions that commit the group's offsets.
type copier struct {
	given    lines.Arguments
	producer sarama.SyncProducer
	portions chan portion
	opened   *portion
	next     int64
	mutex    sync.Mutex
	claims   []int32
}

func (c *copier) Setup(session sarama.ConsumerGroupSession) error {
	c.claim(session.Claims()[c.given.Topic])
	return nil
}

func (c *copier) Cleanup(sarama.ConsumerGroupSession) error {
	c.claim(nil)
	return nil
}

func (c *copier) claim(partitions []int32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.claims = partitions
}

func (c *copier) assigned() []int32 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.claims
}

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			found := portion{session, message, claim, make(chan bool)}
			select {
			case c.portions <- found:
				if isCommitted := <-found.over; !isCommitted {
					return nil
				}
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// copyOn makes the steps it is told, and leaves its group when its input ends.
//
// "copy" reads, writes and commits; "abort" aborts what it wrote; "open" leaves the transaction
// open, which "end" commits.
func copyOn(given lines.Arguments) {
	made := settings(given)
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Group.Session.Timeout = 30 * time.Second
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[given.Balancer]}
	group, err := sarama.NewConsumerGroup(given.Seeds(), given.Group, made)
	lines.Fail(err)
	copying := &copier{given: given, producer: transactional(given), portions: make(chan portion)}
	ctx, leave := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{given.Topic}, copying)
			if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				lines.Fail(err)
			}
		}
	}()
	lines.EachOrder(func(order string) {
		answer := lines.Copied{Id: given.Id}
		if err := copying.do(order, &answer); err != nil {
			answer.Error = err.Error()
		}
		answer.Assigned = copying.assigned()
		lines.Say(answer)
	})
	leave()
	<-over
	lines.Fail(group.Close())
}

// transactional is a producer that took its id over from whoever had it.
func transactional(given lines.Arguments) sarama.SyncProducer {
	made := safe(settings(given))
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Transaction.ID = given.Id
	made.Producer.Transaction.Timeout = 30 * time.Second
	producer, err := sarama.NewSyncProducer(given.Seeds(), made)
	lines.Fail(err)
	return producer
}

func (c *copier) do(order string, answer *lines.Copied) error {
	if order != "end" {
		if err := c.begin(answer); err != nil || answer.Read == 0 || order == "open" {
			return err
		}
	}
	defer func() {
		c.opened.over <- answer.Committed
		c.opened = nil
	}()
	if order != "abort" {
		err := c.commit()
		answer.Committed = err == nil
		if err == nil || c.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			return err
		}
	}
	return c.producer.AbortTxn()
}

// begin a transaction with what came of one partition within a moment; with nothing there is none.
func (c *copier) begin(answer *lines.Copied) error {
	over := time.After(pollFor)
	select {
	case found := <-c.portions:
		c.opened = &found
	case <-over:
		return nil
	}
	messages := []*sarama.ConsumerMessage{c.opened.first}
	for waiting := true; waiting && len(messages) < atATime; {
		select {
		case message, more := <-c.opened.claim.Messages():
			if waiting = more; more {
				messages = append(messages, message)
			}
		case <-over:
			waiting = false
		}
	}
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	answer.Read = len(messages)
	c.next = messages[len(messages)-1].Offset + 1
	copies := make([]*sarama.ProducerMessage, len(messages))
	for at, message := range messages {
		copies[at] = &sarama.ProducerMessage{
			Topic: c.given.Target, Partition: message.Partition, Value: sarama.ByteEncoder(message.Value),
		}
	}
	return c.producer.SendMessages(copies)
}

func (c *copier) commit() error {
	at := &sarama.PartitionOffsetMetadata{Partition: c.opened.first.Partition, Offset: c.next, LeaderEpoch: -1}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{c.given.Topic: {at}}
	member := sarama.NewConsumerGroupMetadataFromSession(c.opened.session, c.given.Group, nil)
	if err := c.producer.AddOffsetsToTxnWithGroupMetadata(offsets, member); err != nil {
		return err
	}
	return c.producer.CommitTxn()
}

// fence takes a transactional id over from whoever has it, and aborts a transaction of its own.
func fence(given lines.Arguments) {
	producer := transactional(given)
	lines.Fail(producer.BeginTxn())
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: given.Target, Value: sarama.StringEncoder("fence")})
	lines.Fail(err)
	lines.Fail(producer.AbortTxn())
	lines.Fail(producer.Close())
}
