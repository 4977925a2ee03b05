// Package membound bounds what callers of a door keep in memory together.
//
// A bound that only refused whoever comes when all is taken could be held by
// anybody who sends the beginnings of large requests and never their ends. So
// room is made: of those who wait for their client, such as for the rest of a
// request, the one is ended that has kept most for longest. And one client has
// no more than a share.
package membound

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Long is how long somebody may keep what another needs who asks for as much;
	// half of it if for half as much, and so on.
	Long       = time.Second
	shares     = 4       // how many clients fill a bound, if each takes all that it may
	leastShare = 2 << 20 // what a client may have in any case: more than one request of the largest size
)

// Options are the bound.
type Options struct {
	Most int64 // how many bytes all may keep together. Required.
	// Client, if not nil, returns the network that counts as one client with
	// addr, and false for an address that may take all. A client may have a
	// quarter.
	Client func(addr netip.Addr) (netip.Prefix, bool)
}

// Holder is somebody who keeps memory, such as a connection. None of its methods
// may wait, or call those of its account.
type Holder interface {
	// Slow returns how much it is in the way of others by now, where all that it
	// keeps is held: about bytes times the milliseconds for which it has kept
	// them, if it waits for its client; else 0.
	Slow(now time.Time, held int64) int64
	// Evict makes it let go of all, which counts no more. It is not called once
	// the account is closed.
	Evict()
}

// Bound is what all keep.
type Bound struct {
	options Options
	share   int64
	held    atomic.Int64
	evicted atomic.Int64

	mu       sync.Mutex // before the mu of an account or of a holder
	accounts map[*Account]struct{}
	clients  map[netip.Prefix]*client
}

// client is one whose share is bounded.
type client struct {
	network  netip.Prefix
	accounts int // guarded by Bound.mu
	held     atomic.Int64
}

// New returns a bound.
func New(o Options) *Bound {
	return &Bound{
		options: o, share: max(o.Most/shares, min(o.Most, leastShare)),
		accounts: map[*Account]struct{}{}, clients: map[netip.Prefix]*client{},
	}
}

// Held returns how many bytes are kept.
func (b *Bound) Held() int64 { return b.held.Load() }

// Evicted returns how many holders were ended to make room.
func (b *Bound) Evicted() int64 { return b.evicted.Load() }

// Account is what one holder keeps. Close it in the end.
type Account struct {
	bound  *Bound
	holder Holder
	client *client // nil without a share

	ending sync.Mutex // while it is closed or its holder ended; before the others
	mu     sync.Mutex
	held   int64
	closed bool
}

// AddrOf returns the address of IP that a connection comes from, if it has one.
func AddrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

// Open returns an account for a holder at addr; the zero address has no share.
func (b *Bound) Open(holder Holder, addr netip.Addr) *Account {
	a := &Account{bound: b, holder: holder}
	var network netip.Prefix
	bounded := false
	if b.options.Client != nil && addr.IsValid() {
		network, bounded = b.options.Client(addr.Unmap().WithZone(""))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts[a] = struct{}{}
	if bounded {
		if a.client = b.clients[network]; a.client == nil {
			a.client = &client{network: network}
			b.clients[network] = a.client
		}
		a.client.accounts++
	}
	return a
}

// Close gives back all that is kept. It may be called more than once.
func (a *Account) Close() {
	a.ending.Lock()
	defer a.ending.Unlock()
	a.settle()
}

// settle gives back all, and counts no more. It reports false if that has been
// done before.
func (a *Account) settle() bool {
	a.mu.Lock()
	before := a.closed
	a.count(-a.held)
	a.closed = true
	a.mu.Unlock()
	a.bound.mu.Lock()
	defer a.bound.mu.Unlock()
	a.bound.forget(a)
	return !before
}

// count needs a.mu.
func (a *Account) count(n int64) {
	if a.closed {
		return
	}
	a.held += n
	a.bound.held.Add(n)
	if a.client != nil {
		a.client.held.Add(n)
	}
}

// forget needs b.mu.
func (b *Bound) forget(a *Account) {
	if _, known := b.accounts[a]; !known {
		return
	}
	delete(b.accounts, a)
	if c := a.client; c != nil {
		if c.accounts--; c.accounts == 0 {
			delete(b.clients, c.network)
		}
	}
}

// Took notes that the holder keeps n bytes more, or less. If that is too much
// for all, somebody is ended, slow or not; too much for the client, one of its
// slow ones.
func (a *Account) Took(n int64) {
	a.mu.Lock()
	a.count(n)
	a.mu.Unlock()
	for n > 0 {
		scope, over := a.excess(0)
		if !over {
			return
		}
		var victim *Account
		if scope != nil {
			victim = a.bound.worst(scope, n*Long.Milliseconds())
		}
		if victim == nil && a.bound.held.Load() > a.bound.options.Most {
			victim = a.bound.worst(nil, 0)
		}
		if victim == nil {
			return
		}
		victim.evict()
	}
}

// Take asks for n bytes more. Whoever is slow has to make room for them: who has
// kept as much for [Long], or more for less. If there is none all the same, or the
// holder itself is the slowest or has been ended, Take reports false.
func (a *Account) Take(n int64) bool {
	for {
		total, scope, over := a.try(n)
		if !over {
			return total > 0
		}
		victim := a.bound.worst(scope, total*Long.Milliseconds())
		if victim == nil || victim == a {
			return false
		}
		victim.evict()
	}
}

// try takes n bytes, or reports for whom they are too much, as excess does. Total
// is what the holder has with them; 0 if it has been ended.
func (a *Account) try(n int64) (total int64, of *client, over bool) {
	a.bound.mu.Lock() // so that no other takes them meanwhile
	defer a.bound.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, nil, false
	}
	total = a.held + n
	if of, over = a.excess(n); !over {
		a.count(n)
	}
	return total, of, over
}

// excess reports whether n bytes more are too much, for the client that it
// returns, or for all.
func (a *Account) excess(n int64) (of *client, over bool) {
	b := a.bound
	if a.client != nil && a.client.held.Load()+n > b.share {
		return a.client, true // whatever all have: it makes room for itself
	}
	return nil, b.held.Load()+n > b.options.Most
}

// worst returns the slowest, of a client or of all, if it is as slow as least. Of
// those who are not slow at all it is the one that keeps most.
func (b *Bound) worst(of *client, least int64) *Account {
	now := time.Now() //nolint:forbidigo // clients are slow on the real clock
	b.mu.Lock()
	defer b.mu.Unlock()
	var victim *Account
	var slow, most int64
	for a := range b.accounts {
		if of != nil && a.client != of {
			continue
		}
		a.mu.Lock()
		held := a.held
		a.mu.Unlock()
		if held == 0 {
			continue
		}
		s := a.holder.Slow(now, held)
		if s >= least && (victim == nil || s > slow || s == slow && held > most) {
			victim, slow, most = a, s, held
		}
	}
	return victim
}

// evict ends the holder, unless it has just ended by itself.
func (a *Account) evict() {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.settle() {
		a.bound.evicted.Add(1)
		a.holder.Evict()
	}
}
