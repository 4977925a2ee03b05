// Package file keeps the entries of a queue in one local file.
//
// Concurrent changes share one transaction and one fsync, so each costs less the more there
// are.
package file

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate/headgate/internal/queue"
)

// The buckets. Sequence numbers are 8 bytes, big endian.
const (
	records  = "records"  // sequence number → entry
	attempts = "attempts" // sequence number → attempts as JSON, if there were any
	ids      = "ids"      // id → sequence number, pending or dead
	keys     = "keys"     // idempotency → fingerprint and id
	results  = "results"  // id → result, as JSON
	expiry   = "expiry"   // time and id of a result → its idempotency hash, or nothing
	secrets  = "secrets"  // nothing but secretKey
)

func buckets() []string { return []string{records, attempts, ids, keys, results, expiry, secrets} }

// Options configure a Store.
type Options struct {
	Path  string           // the file. Required.
	Clock func() time.Time // returns the current time. Required.
}

// Store is a queue.Store.
type Store struct {
	options Options
	db      *bbolt.DB
	writes  chan *write
	closing chan struct{}
	done    chan struct{}
	once    sync.Once
	err     error // of Close

	lot lot // of the current transaction; used by commit only

	mu    sync.Mutex
	index index
	sink  queue.Sink // nil until Run
}

var _ queue.Store = (*Store)(nil)

// Repair describes a damaged file.
type Repair struct {
	// SetAside is the new name of the damaged file, Err the damage.
	SetAside string
	Err      error
	Saved    int // number of entries that could be read
}

// lockTimeout is how long to wait for another process to release the file.
const lockTimeout = 2 * time.Second

// Open opens or creates the file, with mode 0600. A damaged file is renamed, its readable
// entries are copied to a new file, and Repair describes that.
func Open(o Options) (*Store, *Repair, error) {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, nil, err
	}
	db, content, err := open(o.Path)
	var repair *Repair
	if isDamage(err) {
		if content == nil {
			content = salvage(o.Path)
		}
		if db, repair, err = replace(o, content, err); err == nil {
			content, err = read(db)
		}
	}
	if err != nil {
		if db != nil {
			_ = db.Close()
		}
		return nil, nil, err
	}
	s := &Store{
		options: o, db: db, writes: make(chan *write), closing: make(chan struct{}), done: make(chan struct{}),
		index: newIndex(),
	}
	for i := range content {
		s.index.add(content[i].sequence, content[i].ref, content[i].attempts)
	}
	go s.commit()
	return s, repair, nil
}

// stored is an entry in the file.
type stored struct {
	place
	entry *queue.Entry
}

// replace renames the damaged file and writes what could be read to a new one.
func replace(o Options, content []stored, damage error) (*bbolt.DB, *Repair, error) {
	aside := fmt.Sprintf("%s.damaged-%s", o.Path, o.Clock().UTC().Format("20060102T150405.000"))
	if err := os.Rename(o.Path, aside); err != nil {
		return nil, nil, fmt.Errorf("%w; %w", damage, err)
	}
	db, _, err := open(o.Path)
	if err != nil {
		return db, nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for i := range content {
			if err := insert(tx, content[i].entry, &content[i].attempts); err != nil {
				return err
			}
		}
		return nil
	})
	return db, &Repair{SetAside: aside, Err: damage, Saved: len(content)}, err
}

// insert writes an entry with the next sequence number.
func insert(tx *bbolt.Tx, e *queue.Entry, a *queue.Attempts) error {
	sequence, err := tx.Bucket([]byte(records)).NextSequence()
	if err != nil {
		return err
	}
	at := number(sequence)
	if err := tx.Bucket([]byte(records)).Put(at, e.Marshal()); err != nil {
		return err
	}
	if a != nil && *a != (queue.Attempts{}) {
		if err := putJSON(tx, attempts, at, a); err != nil {
			return err
		}
	}
	if hash, ok := e.Idempotency(); ok {
		print := e.Fingerprint()
		if err := tx.Bucket([]byte(keys)).Put(hash[:], append(print[:], e.ID...)); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte(ids)).Put([]byte(e.ID), at)
}

// Close finishes the current transaction and closes the file.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.done
		s.err = s.db.Close()
	})
	return s.err
}

// Run implements [queue.Store]. This process has all entries.
func (s *Store) Run(ctx context.Context, sink queue.Sink) {
	s.mu.Lock()
	s.sink = sink
	for _, p := range s.index.sorted() {
		if p.attempts.Ended.IsZero() {
			sink.Add(p.ref, p.attempts)
		}
	}
	s.mu.Unlock()
	const sweep = time.Minute
	for {
		if err := s.do(ctx, s.forgetResults); errors.Is(err, queue.ErrClosed) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweep): //nolint:forbidigo // results expire on time
		}
	}
}

// number returns a sequence number as a key.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func putJSON(tx *bbolt.Tx, bucket string, key []byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put(key, text)
}

// place is a pending entry or a dead letter.
type place struct {
	sequence uint64
	ref      queue.Ref
	attempts queue.Attempts
}

// tally is the size of one rule's queue.
type tally struct{ entries, bytes, dead, deadBytes int64 }

// load is the size of one line.
type load struct{ entries, bytes int64 }

func (l load) plus(other load) load {
	return load{l.entries + other.entries, l.bytes + other.bytes}
}

type ruleName struct{ domain, rule string }

// index is the content of the file without requests.
type index struct {
	ids     map[string]*place
	tallies map[ruleName]*tally
	lines   map[queue.Line]load // pending entries
}

func newIndex() index {
	return index{ids: map[string]*place{}, tallies: map[ruleName]*tally{}, lines: map[queue.Line]load{}}
}

func (x *index) tally(domain, rule string) *tally {
	name := ruleName{domain, rule}
	if x.tallies[name] == nil {
		x.tallies[name] = &tally{}
	}
	return x.tallies[name]
}

// add adds an entry and returns its place.
func (x *index) add(sequence uint64, ref queue.Ref, a queue.Attempts) *place {
	ref.Order = [2]uint64{sequence}
	p := &place{sequence: sequence, ref: ref, attempts: a}
	x.ids[ref.ID] = p
	x.count(p, 1)
	return p
}

// remove removes an entry.
func (x *index) remove(p *place) {
	x.count(p, -1)
	delete(x.ids, p.ref.ID)
}

// count adds p to the tallies, or subtracts it if sign is -1.
func (x *index) count(p *place, sign int64) {
	t := x.tally(p.ref.Domain, p.ref.Rule)
	if !p.attempts.Ended.IsZero() {
		t.dead += sign
		t.deadBytes += sign * p.ref.Size
		return
	}
	t.entries += sign
	t.bytes += sign * p.ref.Size
	l := x.lines[p.ref.Line].plus(load{sign, sign * p.ref.Size})
	x.lines[p.ref.Line] = l
	if l.entries == 0 {
		delete(x.lines, p.ref.Line)
	}
}

// sorted returns all places in order of acceptance.
func (x *index) sorted() []*place {
	return slices.SortedFunc(maps.Values(x.ids), func(a, b *place) int { return cmp.Compare(a.sequence, b.sequence) })
}
