package main

import (
	"context"
	"errors"

	"barnabas/interop/lines"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// securedRetries are few: what is refused once is refused always.
const securedRetries = 1

// secured does the steps of the secured matrix.
func secured(lines.Arguments) {
	lines.EachScenario(securedSteps, func(err error) (int, bool) {
		var told sarama.KError
		if errors.As(err, &told) {
			return int(told), true
		}
		return 0, false
	})
}

func securedSteps(s lines.Secured) lines.Steps {
	return lines.Steps{
		"produce": func(context.Context) (int, error) {
			return securedSend(s, securedSettings(s), "plain", lines.Count)
		},
		"read":        func(ctx context.Context) (int, error) { return securedRead(ctx, s, lines.Count) },
		"transaction": func(context.Context) (int, error) { return securedTransact(s) },
		"read again":  func(ctx context.Context) (int, error) { return securedRead(ctx, s, lines.More) },
	}
}

// exchange is what sarama wants for SCRAM, around a library.
type exchange struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (e *exchange) Begin(user, password, authzid string) error {
	client, err := e.hash.NewClient(user, password, authzid)
	if err == nil {
		e.ClientConversation = client.NewConversation()
	}
	return err
}

// securedSettings are as the page on security has them.
func securedSettings(s lines.Secured) *sarama.Config {
	made := settings(lines.Arguments{})
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Net.TLS.Enable = true
	made.Net.TLS.Config = s.Tls()
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Retry.Max = securedRetries
	made.Metadata.Retry.Max = securedRetries
	made.Metadata.Timeout = 2 * s.Patience() / 3
	if s.HasLogin() {
		made.Net.SASL.Enable = true
		made.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
		made.Net.SASL.User, made.Net.SASL.Password = s.Username, s.Password
		made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			if s.Mechanism == sarama.SASLTypeSCRAMSHA256 {
				return &exchange{hash: scram.SHA256}
			}
			return &exchange{hash: scram.SHA512}
		}
	}
	return made
}

func securedMessages(s lines.Secured, what string, count int) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = &sarama.ProducerMessage{
			Topic: s.Topic, Value: sarama.ByteEncoder(s.Value(what, number)),
		}
	}
	return messages
}

// firstError of those that a producer tells of all records at once.
func firstError(err error) error {
	var each sarama.ProducerErrors
	if errors.As(err, &each) && len(each) > 0 {
		return each[0].Err
	}
	return err
}

func securedSend(s lines.Secured, made *sarama.Config, what string, count int) (int, error) {
	producer, err := sarama.NewSyncProducer([]string{s.Bootstrap}, made)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	return count, firstError(producer.SendMessages(securedMessages(s, what, count)))
}

func securedTransact(s lines.Secured) (int, error) {
	made := safe(securedSettings(s))
	made.Producer.Retry.Max, made.Metadata.Retry.Max = 10, 10
	made.Producer.Transaction.ID = s.Id
	made.Producer.Transaction.Retry.Max = 10
	producer, err := sarama.NewSyncProducer([]string{s.Bootstrap}, made)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return 0, err
	}
	if err := producer.SendMessages(securedMessages(s, "transaction", lines.More)); err != nil {
		return 0, firstError(err)
	}
	return lines.More, producer.CommitTxn()
}

// securedReader notes what comes, until it is enough.
type securedReader struct {
	count int
	found map[string]bool
	done  context.CancelFunc
}

func (*securedReader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*securedReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *securedReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			r.found[string(message.Value)] = true
			session.MarkMessage(message, "")
			if len(r.found) == r.count {
				session.Commit()
				r.done()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func securedRead(ctx context.Context, s lines.Secured, count int) (int, error) {
	group, err := sarama.NewConsumerGroup([]string{s.Bootstrap}, s.Group, securedSettings(s))
	if err != nil {
		return 0, err
	}
	go func() { // it waits until somebody takes them
		for range group.Errors() {
		}
	}()
	defer group.Close()
	within, done := context.WithCancel(ctx)
	defer done()
	reader := &securedReader{count: count, found: map[string]bool{}, done: done}
	for within.Err() == nil {
		if err := group.Consume(within, []string{s.Topic}, reader); err != nil && within.Err() == nil {
			return len(reader.found), err
		}
	}
	return len(reader.found), nil
}
