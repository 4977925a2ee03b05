package jwt

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/request/client"
)

const (
	// maxAge is how long a token is believed without looking at it again.
	maxAge = 5 * time.Minute
	// maxEntries and maxBytes bound each of the two halves of the cache;
	// the bytes are those of the tokens.
	maxEntries = 4096
	maxBytes   = 4 << 20
)

// cache remembers tokens that were verified. Its zero value is empty.
//
// It has two halves: when the young one is full it becomes the old one, and
// what was in the old one is forgotten unless it was asked for meanwhile. Only
// tokens with a right signature get in, so nobody else can fill it.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]entry
	bytes      int // of young
}

// entry is a verified token.
type entry struct {
	claims *client.Claims
	set    *keySet // with which it was verified
	until  time.Time
	size   int
}

// get returns the claims of a token, or nil if it is not known to be good with
// the keys of set at a time.
func (c *cache) get(id [sha256.Size]byte, set *keySet, at time.Time) *client.Claims {
	c.mu.RLock()
	e, young := c.young[id]
	if !young {
		e = c.old[id]
	}
	c.mu.RUnlock()
	if e.claims == nil || e.set != set || !at.Before(e.until) {
		return nil
	}
	if !young {
		c.put(id, e)
	}
	return e.claims
}

func (c *cache) put(id [sha256.Size]byte, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= maxEntries || c.bytes+e.size > maxBytes {
		c.young, c.old, c.bytes = make(map[[sha256.Size]byte]entry), c.young, 0
	}
	if _, there := c.young[id]; !there {
		c.bytes += e.size
	}
	c.young[id] = e
}
