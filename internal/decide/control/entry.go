// Package control keeps bans and overrides of single keys. All processes that share a
// store share one table; each process puts a snapshot of it into its engine.
//
// A process polls the version of the table once a second and reads the changes.
// While the table is unreachable, the last known entries stay active.
package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/store"
)

// Kind is the kind of an Entry.
type Kind uint8

// The kinds.
const (
	Ban   Kind = iota // refuses the key
	Limit             // overrides its limit
	Grant             // records credit that the key was given; the credit itself is in the store
	Reset             // tells processes that the key was reset; see Manager.WasReset
	Ended             // says that an entry was ended in another region; Key is its name in the table
)

// String returns the word in the table and for operators: ban, limit, grant, reset or
// ended.
func (k Kind) String() string {
	return enum.Name(k, "kind", "ban", "limit", "grant", "reset", "ended")
}

// Entry is a ban or an override of one key of a rule, or the record of a grant.
type Entry struct {
	Kind                Kind
	Domain, Rule, Scope string // Domain and Rule name the rule; Scope is the scope of its counts
	Key                 string // the composed key
	// Rate and Burst are the numbers of an override; empty or 0 means the rule's own.
	Rate           string
	Burst          int64
	Amount         int64     // of a grant
	ID             string    // of a grant: a key may have several
	Until, Created time.Time // the end and the start
	Reason, By     string    // the reason and the operator, as free text

	Changed Stamp // in another region; zero if it was changed in this one
}

// name is the key of e in the table.
func (e *Entry) name() string {
	switch e.Kind {
	case Ended:
		return e.Key
	case Grant:
		return string(headgate.AppendKey(nil, e.Kind.String(), e.Scope, e.Key, e.ID))
	case Ban, Limit, Reset:
	}
	return nameOf(e.Kind, e.Scope, e.Key)
}

func nameOf(kind Kind, scope, key string) string {
	return string(headgate.AppendKey(nil, kind.String(), scope, key))
}

// stored is the written form of an Entry. Readers must ignore unknown fields; any other
// change needs a new Version.
type stored struct {
	Version int    `json:"v"`
	Kind    string `json:"kind"`
	Domain  string `json:"domain"`
	Rule    string `json:"rule"`
	Scope   string `json:"scope"`
	Key     []byte `json:"key"` // arbitrary bytes
	Rate    string `json:"rate,omitempty"`
	Burst   int64  `json:"burst,omitempty"`
	Amount  int64  `json:"amount,omitempty"`
	ID      string `json:"id,omitempty"`
	Until   int64  `json:"until"`   // in ms since the Unix epoch
	Created int64  `json:"created"` // in ms since the Unix epoch
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
	// At and From are the stamp of an entry that comes from another region.
	At   int64  `json:"at,omitempty"`
	From string `json:"from,omitempty"`
}

const version = 1

const (
	maxEntry = 8 << 10 // the largest size of an Entry in bytes
	maxStamp = 128     // what the stamp of another region adds to it
)

// encode is the inverse of decode, but leaves out the stamp: a change made here has the
// version of its row. Times are rounded down to milliseconds.
func (e *Entry) encode() (string, error) {
	text, err := json.Marshal(stored{
		Version: version, Kind: e.Kind.String(), Domain: e.Domain, Rule: e.Rule, Scope: e.Scope, Key: []byte(e.Key),
		Rate: e.Rate, Burst: e.Burst, Amount: e.Amount, ID: e.ID, Until: e.Until.UnixMilli(), Created: e.Created.UnixMilli(), Reason: e.Reason, By: e.By,
	})
	if err == nil && len(text) > maxEntry {
		err = fmt.Errorf("the entry is %d bytes long, at most %d are allowed", len(text), maxEntry)
	}
	return string(text), err
}

// decode reads an Entry written by another process, possibly of another version.
func decode(text string) (*Entry, error) {
	if len(text) > maxEntry+maxStamp {
		return nil, fmt.Errorf("it is %d bytes long, at most %d are allowed", len(text), maxEntry)
	}
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	kind, ok := enum.Parse(s.Kind, Ended)
	if s.Version != version {
		return nil, fmt.Errorf("unsupported version %d, want %d", s.Version, version)
	} else if !ok {
		return nil, fmt.Errorf("unknown kind %q", s.Kind)
	}
	at := Stamp{s.At, s.From}
	if at != (Stamp{}) || kind == Ended {
		if err := at.check(); err != nil {
			return nil, err
		}
	}
	if kind == Ended {
		return &Entry{Kind: kind, Key: string(s.Key), Changed: at}, nil
	}
	if err := s.check(kind); err != nil {
		return nil, err
	}
	return &Entry{
		Kind: kind, Domain: s.Domain, Rule: s.Rule, Scope: s.Scope, Key: string(s.Key), Rate: s.Rate, Burst: s.Burst, Amount: s.Amount, ID: s.ID,
		Until: time.UnixMilli(s.Until).UTC(), Created: time.UnixMilli(s.Created).UTC(), Reason: s.Reason, By: s.By, Changed: at,
	}, nil
}

func (s *stored) check(kind Kind) error {
	switch {
	case s.Scope == "" || s.Domain == "" || s.Rule == "":
		return errors.New("the rule is missing")
	case s.Until <= 0 || s.Until > maxMilli || s.Created < 0 || s.Created > maxMilli:
		return errors.New("a time is out of range")
	case s.Burst < 0 || s.Burst > store.MaxLimit:
		return errors.New("the burst is out of range")
	case (kind == Grant) != (s.Amount > 0) || s.Amount > store.MaxLimit:
		return errors.New("the amount is out of range")
	}
	return nil
}

// maxMilli is the year 5138, beyond which microseconds would not be exact.
const maxMilli = 100_000_000_000_000

const (
	// apart is the smallest change of the difference between the table's clock and ours
	// that is noted.
	apart  = 250 * time.Millisecond
	prompt = 200 * time.Millisecond // slower answers are not trusted about the time
)

// tick notes how far the table's clock is ahead of ours: now was read between two times
// of ours. Rows end by the table's clock, so they end at the same time in all
// processes, whatever their own clocks say.
func (m *Manager) tick(before, now, after time.Time) {
	took := after.Sub(before)
	if now.IsZero() || m.ticked && (took > prompt || took < 0) {
		return
	}
	m.ticked = true
	ahead := now.Sub(before.Add(took / 2)).Round(time.Millisecond) // like the times of entries
	if (ahead - m.ahead).Abs() <= apart {
		return
	}
	if ahead.Abs() <= apart {
		ahead = 0
	}
	m.ahead, m.known = ahead, false // everything is read again
}

// onTable returns e with times on the table's clock.
func (m *Manager) onTable(e *Entry) Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.shifted(m.ahead)
}

func (e *Entry) shifted(by time.Duration) Entry {
	out := *e
	out.Until, out.Created = e.Until.Add(by), e.Created.Add(by)
	return out
}
