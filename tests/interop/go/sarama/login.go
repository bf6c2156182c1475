package main

import (
	"barnabas/interop/lines"

	"github.com/IBM/sarama"
)

type fixedToken string

func (t fixedToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// login by a bearer token, and say which topics there are.
func login(given lines.Arguments) {
	made := settings(given)
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLTypeOAuth
	made.Net.SASL.TokenProvider = fixedToken(given.Token)
	made.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(given.Seeds(), made)
	lines.Fail(err)
	topics, err := client.Topics()
	lines.Fail(err)
	lines.Say(topics)
}
