// Package lines is what both programs say to the tests: one JSON value a line.
//
// A program is called with a command and a JSON object of arguments. Byte strings are base64.
package lines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Beginning as a start means the first offset there is.
const Beginning = -2

// Arguments of every command; each command says which it reads.
type Arguments struct {
	Bootstrap   string
	Topic       string
	Partitions  int32
	Factor      int16
	Codec       string
	Group       string
	Partition   int32
	TimestampMs int64
	Starts      map[int32]int64
	Balancer    string
	Instance    string
	Version     string
	Offsets     map[int32]int64
	Target      string
	Id          string
	User        string
	Password    string
	Token       string
	Protocol    string
	SlowMs      int64
	MaxPollMs   int64
}

// Seeds are the addresses to begin with.
func (a Arguments) Seeds() []string { return strings.Split(a.Bootstrap, ",") }

// Header of a record.
type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Record as it is sent and received; a sent one's Partition -1 leaves the choice to the client.
type Record struct {
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
}

// Polled is what a member answers to every order.
type Polled struct {
	Records  []Record `json:"records"`
	Assigned []int32  `json:"assigned"`
	Error    string   `json:"error"`
}

// Copied is what a copier answers to every order.
type Copied struct {
	Assigned  []int32 `json:"assigned"`
	Read      int     `json:"read"`
	Committed bool    `json:"committed"`
	Id        string  `json:"id"`
	Error     string  `json:"error"`
}

// Acknowledged is one thing that the cluster promised to keep.
type Acknowledged struct {
	Value     string `json:"value"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error"`
}

// Called is one call of an admin client and how it ended; an empty Error means well.
type Called struct {
	Call  string `json:"call"`
	Error string `json:"error"`
}

// Command of this process and its arguments.
func Command() (string, Arguments) {
	var given Arguments
	if len(os.Args) != 3 {
		Fail(fmt.Errorf("usage: %s COMMAND ARGUMENTS", os.Args[0]))
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &given); err != nil {
		Fail(err)
	}
	return os.Args[1], given
}

// Records that standard input holds, all of them.
func Records() []Record {
	var found []Record
	if err := json.NewDecoder(os.Stdin).Decode(&found); err != nil {
		Fail(err)
	}
	return found
}

var saying sync.Mutex

// Say one value.
func Say(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		Fail(err)
	}
	saying.Lock()
	defer saying.Unlock()
	if _, err := os.Stdout.Write(append(text, '\n')); err != nil {
		os.Exit(1) // the test has gone
	}
}

// Fail ends the process with a reason; nil is none.
func Fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// EachOrder calls do for every line of standard input, until it ends.
func EachOrder(do func(order string)) {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		do(orders.Text())
	}
}

// UntilTold returns a channel that is closed when standard input ends.
func UntilTold() <-chan struct{} {
	told := make(chan struct{})
	go func() {
		EachOrder(func(string) {})
		close(told)
	}()
	return told
}

// Table collects the calls of an admin client.
type Table []Called

// Add one call; the first error there is counts.
func (t *Table) Add(call string, errs ...error) {
	row := Called{Call: call}
	for _, err := range errs {
		if err != nil {
			row.Error = err.Error()
			break
		}
	}
	*t = append(*t, row)
}
