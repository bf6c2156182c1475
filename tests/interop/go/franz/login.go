package main

import (
	"context"
	"time"

	"barnabas/interop/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// refusedAfter bounds how long a refused login is tried again.
const refusedAfter = 2 * time.Second

// login by a bearer token, or by a delegation token, and say which topics there are.
func login(ctx context.Context, given lines.Arguments) {
	var by sasl.Mechanism
	if given.Token != "" {
		by = oauth.Auth{Token: given.Token}.AsMechanism()
	} else {
		by = scram.Auth{User: given.User, Pass: given.Password, IsToken: true}.AsSha512Mechanism()
	}
	made := client(given, kgo.SASL(by), kgo.RetryTimeout(refusedAfter))
	found, err := kadm.NewClient(made).ListTopics(ctx)
	lines.Fail(err)
	lines.Say(found.Names())
}
