package lines

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Secured is a scenario of tests/interop/secured/scenarios.py: what to do, and who does it.
type Secured struct {
	Name      string   `json:"name"`
	Bootstrap string   `json:"bootstrap"`
	Steps     []string `json:"steps"`
	Topic     string   `json:"topic"`
	Group     string   `json:"group"`
	Id        string   `json:"id"`
	Protocol  string   `json:"protocol"`
	Mechanism string   `json:"mechanism"`
	Username  string   `json:"username"`
	Password  string   `json:"password"`
	Ca        string   `json:"ca"`
	Cert      string   `json:"cert"`
	Key       string   `json:"key"`
}

// Count of records that are produced and read, More of those in a transaction.
const (
	Count   = 10
	More    = 5
	refused = 8 * time.Second
	served  = 120 * time.Second
)

// Patience is how long the steps may take: less where they can only be refused.
func (s Secured) Patience() time.Duration {
	if s.has("read") {
		return served
	}
	return refused
}

func (s Secured) has(step string) bool {
	for _, one := range s.Steps {
		if one == step {
			return true
		}
	}
	return false
}

// HasLogin says whether a password is proved.
func (s Secured) HasLogin() bool { return s.Protocol == "SASL_SSL" }

// Value of a record that no other scenario has.
func (s Secured) Value(what string, number int) []byte {
	return []byte(fmt.Sprintf("%s %s %d", s.Topic, what, number))
}

// Tls that believes the authority, and shows a certificate where there is one.
func (s Secured) Tls() *tls.Config {
	text, err := os.ReadFile(s.Ca)
	Fail(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	made := &tls.Config{RootCAs: pool}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		Fail(err)
		made.Certificates = []tls.Certificate{pair}
	}
	return made
}

// Steps of a scenario by their names, each with the number of records that it moved.
type Steps map[string]func(context.Context) (int, error)

// EachScenario does the steps of all scenarios and prints what came of them.
func EachScenario(stepsOf func(Secured) Steps, codeOf func(error) (int, bool)) {
	var given []Secured
	Fail(json.NewDecoder(os.Stdin).Decode(&given))
	outcomes := map[string]map[string]any{}
	for _, scenario := range given {
		found, steps := map[string]any{}, stepsOf(scenario)
		for _, name := range scenario.Steps {
			if step, can := steps[name]; can {
				found[name] = outcome(scenario, step, codeOf)
			}
		}
		outcomes[scenario.Name] = found
	}
	Say(outcomes)
}

func outcome(scenario Secured, step func(context.Context) (int, error), codeOf func(error) (int, bool)) any {
	within, done := context.WithTimeout(context.Background(), scenario.Patience())
	defer done()
	count, err := step(within)
	if err == nil {
		return count
	}
	if code, is := codeOf(err); is {
		return strconv.Itoa(code)
	}
	return transport(err)
}

// transport says whether it was TLS that failed, or the connection.
func transport(err error) string {
	text := err.Error()
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case strings.Contains(text, "SASL Authentication failed"): // sarama keeps the text alone
		return "58"
	case errors.As(err, &verification), errors.As(err, &alert):
		return "TLS"
	case strings.Contains(text, "tls: "), strings.Contains(text, "x509: "):
		return "TLS"
	}
	for _, one := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, one) || strings.Contains(text, one.Error()) {
			return "closed"
		}
	}
	return text
}
