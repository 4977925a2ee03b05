// Package membound limits the memory that all callers of a door hold together.
//
// A limit that refused new requests once it is reached could be used up by clients that
// start large requests and never finish them. So memory is freed instead: of the holders
// that wait for their client, such as for the rest of a request, the one that has held
// most for longest is ended. A single client only gets a share of the memory.
package membound

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Long is how long a holder may keep memory that another one needs as much of. For
	// half as much it is half as long, and so on.
	Long       = time.Second
	shares     = 4       // a client may hold one share of the memory
	leastShare = 2 << 20 // least share in bytes: more than one request of the largest size
)

// Options configure a [Bound].
type Options struct {
	Most int64 // bytes that all may hold together; required
	// Client returns the network that counts as one client with addr, or false for an
	// address without a limit of its own. A client may hold a quarter of Most. May be
	// nil.
	Client func(addr netip.Addr) (netip.Prefix, bool)
}

// Holder holds memory, such as a connection. Its methods must not block, nor call those
// of its account.
type Holder interface {
	// Slow returns how much the holder, which holds that many bytes, obstructs others:
	// about bytes times the milliseconds for which it has held them while it waits for
	// its client, or 0 if it does not wait.
	Slow(now time.Time, held int64) int64
	// Evict makes the holder release everything; its memory no longer counts. It is not
	// called after the account is closed.
	Evict()
}

// Bound is the memory of all holders.
type Bound struct {
	options Options
	share   int64
	held    atomic.Int64
	evicted atomic.Int64

	mu       sync.Mutex // before the mu of an account or of a holder
	accounts map[*Account]struct{}
	clients  map[netip.Prefix]*client
}

// client is a client with a limited share.
type client struct {
	network  netip.Prefix
	accounts int // guarded by Bound.mu
	held     atomic.Int64
}

// New returns a Bound.
func New(o Options) *Bound {
	return &Bound{
		options: o, share: max(o.Most/shares, min(o.Most, leastShare)),
		accounts: map[*Account]struct{}{}, clients: map[netip.Prefix]*client{},
	}
}

// Held returns how many bytes are held.
func (b *Bound) Held() int64 { return b.held.Load() }

// Evicted returns how many holders were ended to free memory.
func (b *Bound) Evicted() int64 { return b.evicted.Load() }

// Account is the memory of one holder. Close it when done.
type Account struct {
	bound  *Bound
	holder Holder
	client *client // nil if not limited

	ending sync.Mutex // held while it is closed or evicted; locked before the others
	mu     sync.Mutex
	held   int64
	closed bool
}

// AddrOf returns the IP address of a connection, or the zero Addr.
func AddrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

// Open returns an account for a holder at addr. The zero Addr is not limited to a share.
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

// Close releases all memory of the account. It may be called more than once.
func (a *Account) Close() {
	a.ending.Lock()
	defer a.ending.Unlock()
	a.settle()
}

// settle releases everything and stops counting. It reports false if it was called
// before.
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

// Took records that the holder has taken n more bytes; n may be negative. If all hold too
// much, a holder is ended, slow or not. If the client holds too much, one of its slow
// holders is.
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

// Take takes n more bytes. If there is not enough memory, a slow holder is ended: one
// that has held as much for [Long], or more for less. Take reports false if there is
// none, or if the holder itself is the slowest or has been ended.
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

// TakeFree is Take that ends no other holder: it takes n more bytes only if they are free. It
// takes the same time however many holders there are, so it is for many small ones.
func (a *Account) TakeFree(n int64) bool {
	total, _, over := a.try(n)
	return !over && total > 0
}

// try takes n bytes, or reports whose limit they exceed, as excess does. total is what
// the holder then has; 0 if it has been ended.
func (a *Account) try(n int64) (total int64, of *client, over bool) {
	a.bound.mu.Lock() // so that no other account takes them
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

// excess reports whether n more bytes exceed a limit: that of the returned client, or
// that of all.
func (a *Account) excess(n int64) (of *client, over bool) {
	b := a.bound
	if a.client != nil && a.client.held.Load()+n > b.share {
		return a.client, true // the client has to free its own memory first
	}
	return nil, b.held.Load()+n > b.options.Most
}

// worst returns the slowest account, of a client or of all, if it is at least as slow as
// least. Of all, one counts by what its client holds: who holds little does not give way to
// those who hold much. Of accounts that are not slow, it is the one that holds most.
func (b *Bound) worst(of *client, least int64) *Account {
	now := time.Now() //nolint:forbidigo // clients are slow on the real clock
	b.mu.Lock()
	defer b.mu.Unlock()
	var victim *Account
	var slow float64
	var most int64
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
		obstructs := a.holder.Slow(now, held)
		s := float64(obstructs)
		switch {
		case of != nil:
		case a.client != nil:
			s *= float64(a.client.held.Load())
		default: // a client of its own, or one of many behind a proxy
			s *= float64(held)
		}
		if obstructs >= least && (victim == nil || s > slow || s == slow && held > most) {
			victim, slow, most = a, s, held
		}
	}
	return victim
}

// evict ends the holder, unless it has just ended itself.
func (a *Account) evict() {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.settle() {
		a.bound.evicted.Add(1)
		a.holder.Evict()
	}
}
