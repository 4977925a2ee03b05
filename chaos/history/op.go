package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
)

// Kind is the kind of a call, or of an event in the store.
type Kind string

// The kinds.
const (
	Take    Kind = "take"
	Peek    Kind = "peek"
	Reserve Kind = "reserve"
	Commit  Kind = "commit"
	Cancel  Kind = "cancel"
	Acquire Kind = "acquire"
	Release Kind = "release"
	Renew   Kind = "renew"
	// Lost is an event: what was charged from Since to Return may be forgotten, as documented
	// for the fault between Call and Return.
	Lost Kind = "lost"
	// Set is an event: the store's clock was set back when it showed Since. What was fresh by
	// then may be forgotten.
	Set     Kind = "set"
	Emptied Kind = "emptied" // an event: the store forgot everything
)

// Op is one call. Times are in microseconds since the Unix epoch, on one clock that never goes
// back.
type Op struct {
	ID     int
	Client int
	Kind   Kind
	// Key is the key that is counted; ops of different keys are independent. Events of the
	// store have none.
	Key string `json:",omitempty"`
	// Limits are the names of the limits that apply.
	Limits []string `json:",omitempty"`
	Cost   int64    `json:",omitempty"`
	Of     int      `json:",omitempty"` // the op whose reservation or lease this one settles
	Was    int64    `json:",omitempty"` // what that op took; Cost is the final cost

	Call, Return int64
	Since        int64 `json:",omitempty"` // for Lost and Set

	// The node, for people.
	Node string `json:",omitempty"`
	Door string `json:",omitempty"`
	// Answer is nil if it is unknown whether the call was done: no answer came, or one from a
	// failure policy. Return is then the latest time at which it can have been done.
	Answer *Answer `json:",omitempty"`
	Note   string  `json:",omitempty"` // for people: an error, or why the answer is not from the store
}

// Answer is the store's answer, with times in milliseconds.
type Answer struct {
	Allowed   bool
	Rule      string `json:",omitempty"`
	Limit     int64
	Remaining int64
	Retry     int64 `json:",omitempty"`
	Reset     int64
	Delay     int64 `json:",omitempty"`
	// Vague: the numbers may be slightly old, because a node that remembers refusals answered.
	Vague bool `json:",omitempty"`
}

// History is the input of Check.
type History struct {
	// Seed is the seed of the callers and faults.
	Seed   uint64
	Limits []Limit
	Slack  int64 // largest difference between the store's clock and the callers'
	Memory int64 `json:",omitempty"` // how long a node may refuse after a refund elsewhere
	// Reach is by how much an entry may be older than a take and still be refunded in its
	// place by a sliding log, which knows the time of the take only roughly.
	Reach int64   `json:",omitempty"`
	Clock []Shift `json:",omitempty"` // times at which the store's clock was changed
	// Faults are the faults, for people.
	Faults []Mark `json:",omitempty"`
	Ops    []Op
}

// Mark is the time of a fault.
type Mark struct {
	At   int64
	Name string
}

// Shift: from From on, until the next Shift, the store's clock was ahead of the callers' by
// Least to Most.
type Shift struct{ From, Least, Most int64 }

// shifted returns how far the store's clock may have been ahead during a time.
func (h *History) shifted(from, to int64) (least, most int64) {
	least, most = math.MaxInt64, math.MinInt64
	now := Shift{From: math.MinInt64}
	for i := 0; now.From <= to; i++ {
		last := i >= len(h.Clock)
		if last || h.Clock[i].From >= from {
			least, most = min(least, now.Least), max(most, now.Most)
		}
		if last {
			break
		}
		now = h.Clock[i]
	}
	return least, most
}

// limit returns the limit with that name.
func (h *History) limit(name string) *Limit {
	for i := range h.Limits {
		if h.Limits[i].Name == name {
			return &h.Limits[i]
		}
	}
	return nil
}

// Save writes the history, one op per line.
func (h *History) Save(file string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	head := *h
	head.Ops = nil
	err := e.Encode(head)
	for i := range h.Ops {
		err = errors.Join(err, e.Encode(&h.Ops[i]))
	}
	return errors.Join(err, os.WriteFile(file, b.Bytes(), 0o600))
}

// Load reads what Save wrote.
func Load(file string) (*History, error) {
	f, err := os.Open(file) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(f)
	h := new(History)
	err = d.Decode(h)
	for err == nil && d.More() {
		var op Op
		err = d.Decode(&op)
		h.Ops = append(h.Ops, op)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: op %d: %w", file, len(h.Ops), err)
	}
	return h, nil
}
