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

// write is one change of the file.
type write struct {
	// apply makes it. It may look at the index, and returns what is to be done
	// to the index, and told, once the change is on disk; nil if nothing is. An
	// error of its own, such as queue.ErrFull, says that it has changed nothing;
	// one of the file undoes all.
	apply func(tx *bbolt.Tx) (after func(), err error)
	err   error
	ready chan struct{}
}

// mostAtOnce is how many changes go to disk together.
const mostAtOnce = 1024

// do has a change written and returns when it is safe on disk, or is not going
// to be. It does not give up before: nobody would know then which.
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

// commit writes changes until the Store is closed. While one lot is on its way
// to disk the next gathers.
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

// together writes a lot in one piece. If that fails, each is tried by itself,
// so that one which is too large for what is left of the disk does not take the
// others with it.
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

// finish tells the callers.
func (s *Store) finish(lot []*write, err error) {
	for _, w := range lot {
		if err != nil {
			w.err = fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
		}
		close(w.ready)
	}
}

// update makes the changes of a lot in one transaction. The index is ahead of
// the disk only within it: s.mu is held from the first change to the last fsync
// of those who would see it.
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

// isRefusal reports whether an error is about one change alone.
func isRefusal(err error) bool {
	return errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrConflict) || errors.Is(err, queue.ErrNotFound)
}

// forgetResults removes results whose time is over.
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

// forgetKey removes an idempotency key, if it is still that of the entry.
func forgetKey(tx *bbolt.Tx, hash, id []byte) error {
	b := tx.Bucket([]byte(keys))
	if known := b.Get(hash); len(hash) == 0 || len(known) <= 32 || !bytes.Equal(known[32:], id) {
		return nil
	}
	return b.Delete(hash)
}

// remove deletes the record of an entry. With a result it is kept for a while
// under the entry's name; else its idempotency key goes too.
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
