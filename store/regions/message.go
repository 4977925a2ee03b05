package regions

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// longestMessage is the longest message, in bytes, that is read. What regions publish has
// less than half of that, with keys in base64.
const longestMessage = 2 << 20

// version is that of messages. A region ignores messages of versions that it does not
// know, and fields that it does not know.
const version = 1

// content is a message. Keys are bytes, so they are in base64.
type content struct {
	Version int     `json:"v"`
	From    string  `json:"from,omitempty"`  // the region that publishes
	Store   string  `json:"store,omitempty"` // the store.Office.Identity of the one that wants
	Hello   string  `json:"hello,omitempty"` // of Store.Verify
	Limits  []spec  `json:"limits,omitempty"`
	Wants   []claim `json:"wants,omitempty"` // of the region that publishes
	Gifts   []gift  `json:"gifts,omitempty"` // from it
	// Seen is what the region that publishes had acted upon, by region, in microseconds by
	// the clock of that. It comes with what the region wants, and after it was given
	// something.
	Seen map[string]int64 `json:"seen,omitempty"`
}

// claim says that a region wants tokens of a key.
type claim struct {
	Scope  string `json:"scope,omitempty"`
	Limit  int    `json:"limit"` // the place in Limits
	Key    []byte `json:"key"`
	Tokens int64  `json:"n"`
}

// gift says that a region has been given tokens of a key.
type gift struct {
	To     string `json:"to"`
	For    string `json:"for,omitempty"` // the Store of the claim
	Scope  string `json:"scope,omitempty"`
	Limit  int    `json:"limit"` // the place in Limits
	Key    []byte `json:"key"`
	Tokens int64  `json:"n"`
	// Charged is when, or a little before, by the clock that the giver's messages have,
	// and Until the CountsUntil of it, by the clock that has the key. Both are in
	// microseconds.
	Charged int64 `json:"charged"`
	Until   int64 `json:"until"`
}

// want is a claim of this region.
type want struct {
	entity
	scope  string
	limit  headgate.Limit
	tokens int64
}

// writer writes a message.
type writer struct {
	content
	places map[*store.Rule]int
	size   int // of the keys and scopes of gifts, in bytes
}

// place returns the place of a limit in the message.
func (w *writer) place(l headgate.Limit) int {
	i, ok := w.places[l.Rule()]
	if !ok {
		if w.places == nil {
			w.places = make(map[*store.Rule]int)
		}
		i = len(w.Limits)
		w.places[l.Rule()] = i
		w.Limits = append(w.Limits, specOf(l))
	}
	return i
}

func (w *writer) want(n *want) {
	w.Wants = append(w.Wants, claim{Scope: n.scope, Limit: w.place(n.limit), Key: []byte(n.key), Tokens: n.tokens})
}

func (w *writer) give(g *gift) {
	w.Gifts = append(w.Gifts, *g)
	w.size += len(g.Key) + len(g.Scope)
}

func (w *writer) bytes() ([]byte, error) {
	w.Version = version
	return json.Marshal(&w.content)
}

// ErrMessage is wrapped by errors about messages that cannot be read.
var ErrMessage = errors.New("regions: unreadable message")

// known is a limit of a message.
type known struct {
	limit headgate.Limit
	err   error
}

// limits keeps the limits that other regions describe.
type limits struct{ made map[spec]headgate.Limit }

func (l *limits) of(s *spec) (headgate.Limit, error) {
	if limit, ok := l.made[*s]; ok {
		return limit, nil
	}
	limit, err := s.whole()
	if err != nil {
		return limit, err
	}
	if l.made == nil || len(l.made) >= mostParts {
		l.made = make(map[spec]headgate.Limit)
	}
	l.made[*s] = limit
	return limit, nil
}

// read returns a message and its limits, or nil for one of another version.
func (l *limits) read(data []byte) (*content, []known, error) {
	if len(data) > longestMessage {
		return nil, nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrMessage, len(data), longestMessage)
	}
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if c.Version != version {
		return nil, nil, nil
	}
	limits := make([]known, len(c.Limits))
	for i := range c.Limits {
		limits[i].limit, limits[i].err = l.of(&c.Limits[i])
	}
	for i := range c.Wants {
		if w := &c.Wants[i]; w.Limit < 0 || w.Limit >= len(limits) || w.Tokens <= 0 {
			return nil, nil, fmt.Errorf("%w: want %d", ErrMessage, i)
		}
	}
	for i := range c.Gifts {
		if g := &c.Gifts[i]; g.Limit < 0 || g.Limit >= len(limits) || g.Tokens <= 0 || g.Charged <= 0 || g.Until <= 0 {
			return nil, nil, fmt.Errorf("%w: gift %d", ErrMessage, i)
		}
	}
	return &c, limits, nil
}
