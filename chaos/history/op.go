package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
)

// Kind is what a call asked for, or what befell the store.
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
	// Lost is no call: what was charged from Since to Return may be forgotten,
	// as documented for what was done to the store between Call and Return.
	Lost Kind = "lost"
	// Set is no call: the store's clock was set back when it said Since. What
	// was fresh by then may have been forgotten.
	Set     Kind = "set"
	Emptied Kind = "emptied" // no call: the store forgot everything
)

// Op is one call. Times are in microseconds since the Unix epoch, by one clock
// that never goes back.
type Op struct {
	ID     int
	Client int
	Kind   Kind
	// Key is what is counted; ops of different keys have nothing to do with
	// each other. Those of the store itself have none.
	Key string `json:",omitempty"`
	// Limits are the names of those that apply.
	Limits []string `json:",omitempty"`
	Cost   int64    `json:",omitempty"`
	Of     int      `json:",omitempty"` // the op whose reservation or lease this one is about
	Was    int64    `json:",omitempty"` // what that one took, and Cost what it comes to

	Call, Return int64
	Since        int64 `json:",omitempty"` // for Lost and Set

	// Where it was asked, for people.
	Node string `json:",omitempty"`
	Door string `json:",omitempty"`
	// Answer is nil if nobody knows whether it was done: no answer came, or
	// one that a failure policy made up. Return is then when it cannot be done
	// any more.
	Answer *Answer `json:",omitempty"`
	Note   string  `json:",omitempty"` // for people: an error, or why the answer is not the store's
}

// Answer is what the store said, times in milliseconds.
type Answer struct {
	Allowed   bool
	Rule      string `json:",omitempty"`
	Limit     int64
	Remaining int64
	Retry     int64 `json:",omitempty"`
	Reset     int64
	Delay     int64 `json:",omitempty"`
	// Vague says that the numbers may be those of a moment ago: the answer of a
	// node that remembers refusals.
	Vague bool `json:",omitempty"`
}

// History is what there is to check.
type History struct {
	// Seed is what the callers and the faults were drawn from.
	Seed   uint64
	Limits []Limit
	Slack  int64 // how far the store's clock may be from that of the callers
	Memory int64 `json:",omitempty"` // how long a node may go on refusing what has been given back elsewhere
	// Reach is how much older than a take an entry may be that a sliding log
	// gives back in its stead, because it knows only about when that was.
	Reach int64   `json:",omitempty"`
	Clock []Shift `json:",omitempty"` // the times at which the store's clock was another one
	// Faults are what was broken, for people.
	Faults []Mark `json:",omitempty"`
	Ops    []Op
}

// Mark is when something was broken.
type Mark struct {
	At   int64
	Name string
}

// Shift says that from From on the store's clock was ahead of the callers' by
// some time from Least to Most, until the next Shift.
type Shift struct{ From, Least, Most int64 }

// shifted returns by how much the store's clock may have been ahead in a time.
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

// limit returns the limit of that name.
func (h *History) limit(name string) *Limit {
	for i := range h.Limits {
		if h.Limits[i].Name == name {
			return &h.Limits[i]
		}
	}
	return nil
}

// Save writes the history, a line for each op.
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
	f, err := os.Open(file) //nolint:gosec // the caller says where
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
