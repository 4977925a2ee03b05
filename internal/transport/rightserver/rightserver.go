// Package rightserver holds the client of a Redis server, and replaces it when its
// address leads to another server.
//
// A server that answers may still be the wrong one: after a fail-over, a Service, a DNS
// name or a balancer leads to the new primary, but connections made before lead to the
// old one for as long as they live. So an error that only a wrong server gives, or that
// another server might not give, makes a [Holder] connect again; so does time. If another
// server answers there, calls go to it. If the same one does, nothing changes: calls in
// progress are never cut off.
package rightserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// checkMin and checkMax limit the time between two looks at where the address leads,
	// while the server gives such errors.
	checkMin = 100 * time.Millisecond
	checkMax = time.Second
	// checkEvery is how often to look without an error: an old primary may still accept
	// writes.
	checkEvery = 30 * time.Second
	// askTimeout limits how long a server may take to say who it is.
	askTimeout = time.Second
	// calmAfter is how long there must have been no such error for the next to be looked
	// at as at first.
	calmAfter = 10 * time.Second
)

// Codes returns the errors of a server that answers and may be the wrong one: a
// replica, a primary that was cut off, one that is full, still loads, cannot save or no
// longer knows the user.
func Codes() []string {
	return []string{"READONLY", "MASTERDOWN", "NOREPLICAS", "OOM", "LOADING", "MISCONF", "CLUSTERDOWN", "NOAUTH"}
}

// CodeOf returns which of Codes err is, or "".
func CodeOf(err error) string {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return ""
	}
	text := e.Error()
	// An error inside a script has its own code, which is in the middle up to Redis 6.
	script := strings.HasPrefix(text, "ERR ") && strings.Contains(text, "user_script:")
	for _, code := range Codes() {
		if strings.HasPrefix(text, code+" ") || script && strings.Contains(text, code+" ") {
			return code
		}
	}
	return ""
}

// Options configure a Holder.
type Options struct {
	// Dial makes a client, which connects. Required.
	Dial func() (rueidis.Client, error)
	// Adopt, if not nil, is called with each further client before it is used.
	Adopt func(rueidis.Client)
	// Linger is how long a replaced client stays open for the calls that use it.
	Linger time.Duration
	// Cluster says that the client finds the servers of a cluster, each of which has a
	// name of its own. It is then replaced only after an error.
	Cluster bool
}

// Holder holds a client. Create it with [New] and end it with [Holder.Close].
type Holder struct {
	options Options
	now     atomic.Pointer[rueidis.Client]
	moved   atomic.Uint64
	counts  []atomic.Uint64 // by code
	timer   *time.Timer
	work    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	looks  bool // whether a check runs
	wait   time.Duration
	next   time.Time // no check before then
	last   time.Time // of the errors
	old    []rueidis.Client
}

// New returns a Holder of client.
func New(client rueidis.Client, o Options) *Holder {
	h := &Holder{options: o, counts: make([]atomic.Uint64, len(Codes())), wait: checkMin}
	h.now.Store(&client)
	h.timer = time.AfterFunc(checkEvery, h.pass)
	return h
}

// Client returns the client for the next call.
func (h *Holder) Client() rueidis.Client { return *h.now.Load() }

// Moved returns how often another server was certainly found.
func (h *Holder) Moved() uint64 { return h.moved.Load() }

// Errors returns how often each of Codes has come.
func (h *Holder) Errors() map[string]uint64 {
	all := make(map[string]uint64, len(h.counts))
	for i, code := range Codes() {
		all[code] = h.counts[i].Load()
	}
	return all
}

// Observe is called with the error of each call. It does not block.
func (h *Holder) Observe(err error) {
	if err == nil {
		return
	}
	code := CodeOf(err)
	if code == "" {
		return
	}
	h.counts[slices.Index(Codes(), code)].Add(1)
	h.start(time.Now()) //nolint:forbidigo // waiting for a server
}

// start checks where the address leads, unless that was done a moment ago.
func (h *Holder) start(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.last) > calmAfter {
		h.wait = checkMin
	}
	h.last = now
	if h.closed || h.looks || now.Before(h.next) {
		return
	}
	h.looks = true
	h.work.Go(func() {
		h.check(h.doubted)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.looks, h.next, h.wait = false, time.Now().Add(h.wait), min(2*h.wait, checkMax) //nolint:forbidigo // see above
	})
}

// pass looks from time to time.
func (h *Holder) pass() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.timer.Reset(checkEvery)
	if !h.looks && !h.options.Cluster {
		h.looks = true
		h.work.Go(func() {
			h.Look()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.looks = false
		})
	}
}

// Look moves to another server, if the address leads to one.
func (h *Holder) Look() { h.check(func(is likeness) bool { return is == other }) }

// doubted reports whether to use a server found after an error of the one in use.
func (h *Holder) doubted(is likeness) bool { return is != same }

// likeness says whether a server is the one in use.
type likeness uint8

const (
	unknown likeness = iota // it does not tell, or there are several, as in a cluster
	same
	other
)

// check connects, and uses the new client if better says so.
func (h *Holder) check(better func(is likeness) bool) {
	found, err := h.options.Dial()
	if err == nil {
		if is := h.compare(found); better(is) && h.adopt(found, is) {
			return
		}
	}
	if found != nil {
		found.Close()
	}
}

// compare says whether found leads to the server in use.
func (h *Holder) compare(found rueidis.Client) likeness {
	if h.options.Cluster {
		return unknown
	}
	name, was := nameOf(found), nameOf(h.Client())
	switch {
	case name == "":
		return unknown
	case name == was:
		return same
	case was == "": // the one in use does not answer, or was not allowed to
		return unknown
	}
	return other
}

// adopt makes found the client, unless the Holder is closed.
func (h *Holder) adopt(found rueidis.Client, is likeness) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.options.Adopt != nil {
		h.options.Adopt(found)
	}
	old := *h.now.Swap(&found)
	if is == other { // otherwise it may be the same one
		h.moved.Add(1)
	}
	h.old = append(h.old, old)
	time.AfterFunc(h.options.Linger, func() {
		h.mu.Lock()
		h.old = slices.DeleteFunc(h.old, func(c rueidis.Client) bool { return c == old })
		h.mu.Unlock()
		old.Close()
	})
	return true
}

// nameOf returns what a server calls itself since its start, or "" if it does not tell.
func nameOf(client rueidis.Client) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(info, "\nrun_id:")
	name, _, _ := strings.Cut(after, "\r\n")
	return name
}

// Close closes all clients.
func (h *Holder) Close() {
	h.mu.Lock()
	h.closed = true
	h.timer.Stop()
	old := h.old
	h.old = nil
	h.mu.Unlock()
	h.work.Wait()
	for _, client := range append(old, h.Client()) {
		client.Close()
	}
}
