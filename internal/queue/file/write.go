package file

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate/headgate/internal/queue"
)

// write is one change to the file.
type write struct {
	// apply makes the change. It may read the index, and returns a function that updates the
	// index once the change is on disk, or nil. An error such as queue.ErrFull means that it
	// changed nothing; an error of the file undoes the whole transaction.
	apply func(tx *bbolt.Tx) (after func(), err error)
	err   error
	ready chan struct{}
}

// mostAtOnce is how many changes share a transaction.
const mostAtOnce = 1024

// do returns when a change is safe on disk or has failed. It does not stop earlier, because
// the result would be unknown.
func (s *Store) do(_ context.Context, apply func(tx *bbolt.Tx) (func(), error)) error {
	w := &write{apply: apply, ready: make(chan struct{})}
	select {
	case s.writes <- w:
		<-w.ready
		return w.err
	case <-s.closing:
		return queue.ErrClosed
	}
}

// commit writes changes until the Store is closed. While one lot goes to disk, the next
// gathers.
func (s *Store) commit() {
	defer close(s.done)
	var lot []*write
	for {
		lot = lot[:0]
		select {
		case w := <-s.writes:
			lot = append(lot, w)
		case <-s.closing:
			return
		}
	gather:
		for len(lot) < mostAtOnce {
			select {
			case w := <-s.writes:
				lot = append(lot, w)
			default:
				break gather
			}
		}
		s.together(lot)
	}
}

// together writes a lot in one transaction. If that fails it writes each change separately, so
// that one that is too large for the disk does not fail the others.
func (s *Store) together(lot []*write) {
	err := s.update(lot)
	if err != nil && len(lot) > 1 {
		for _, w := range lot {
			s.finish([]*write{w}, s.update([]*write{w}))
		}
		return
	}
	s.finish(lot, err)
}

// finish reports the result to the callers.
func (s *Store) finish(lot []*write, err error) {
	for _, w := range lot {
		if err != nil {
			w.err = fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
		}
		close(w.ready)
	}
}

// update makes the changes of a lot in one transaction, and updates the index once they are on
// disk.
func (s *Store) update(lot []*write) error {
	pending := make([]func(), 0, len(lot))
	err := guarded(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			pending = pending[:0]
			s.lotBegins()
			for _, w := range lot {
				after, err := w.apply(tx)
				w.err = err
				if err != nil && !isRefusal(err) {
					return fmt.Errorf("undone: %w", err)
				}
				if after != nil {
					pending = append(pending, after)
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, after := range pending {
		after()
	}
	return nil
}

// isRefusal reports whether an error concerns a single change.
func isRefusal(err error) bool {
	return errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrConflict) || errors.Is(err, queue.ErrNotFound)
}

// forgetResults removes expired results.
func (s *Store) forgetResults(tx *bbolt.Tx) (func(), error) {
	const mostOfThem = 10_000
	now := number(uint64(max(s.options.Clock().UnixMicro(), 0)))
	c := tx.Bucket([]byte(expiry)).Cursor()
	var old, hashes [][]byte
	for k, v := c.First(); k != nil && bytes.Compare(k[:min(8, len(k))], now) <= 0 && len(old) < mostOfThem; k, v = c.Next() {
		old, hashes = append(old, bytes.Clone(k)), append(hashes, bytes.Clone(v))
	}
	for i, k := range old {
		if err := tx.Bucket([]byte(expiry)).Delete(k); err != nil {
			return nil, err
		}
		if len(k) > 8 {
			if err := tx.Bucket([]byte(results)).Delete(k[8:]); err != nil {
				return nil, err
			}
		}
		if err := forgetKey(tx, hashes[i], k[min(8, len(k)):]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// forgetKey removes an idempotency key if it still belongs to the entry.
func forgetKey(tx *bbolt.Tx, hash, id []byte) error {
	b := tx.Bucket([]byte(keys))
	if known := b.Get(hash); len(hash) == 0 || len(known) <= 32 || !bytes.Equal(known[32:], id) {
		return nil
	}
	return b.Delete(hash)
}

// remove deletes the record of an entry. With a result, the result is kept under the entry's
// id until then; otherwise the idempotency key is removed too.
func remove(tx *bbolt.Tx, p *place, result *queue.Result, until time.Time) error {
	at := number(p.sequence)
	e, err := queue.Unmarshal(tx.Bucket([]byte(records)).Get(at))
	var hash []byte
	if err == nil {
		if h, ok := e.Idempotency(); ok {
			hash = h[:]
		}
	}
	for bucket, key := range map[string][]byte{records: at, attempts: at, ids: []byte(p.ref.ID)} {
		if err := tx.Bucket([]byte(bucket)).Delete(key); err != nil {
			return err
		}
	}
	if result == nil {
		return forgetKey(tx, hash, []byte(p.ref.ID))
	}
	if err := putJSON(tx, results, []byte(p.ref.ID), result); err != nil {
		return err
	}
	due := binary.BigEndian.AppendUint64(nil, uint64(max(until.UnixMicro(), 0)))
	return tx.Bucket([]byte(expiry)).Put(append(due, p.ref.ID...), hash)
}
