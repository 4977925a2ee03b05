package file

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/headgate/headgate/internal/queue"
)

// guarded calls f and turns a panic into an error: bbolt assumes that its file is intact, and
// reading a bad page faults.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", queue.ErrDamaged, p)
		}
	}()
	return f()
}

// view reads a file.
func view(db *bbolt.DB, f func(tx *bbolt.Tx) error) error {
	return guarded(func() error { return db.View(f) })
}

// asDamage marks errors of bbolt that are about the content of a file, not about access to it.
func asDamage(err error) error {
	var path *fs.PathError
	var number syscall.Errno
	if err == nil || errors.As(err, &path) || errors.As(err, &number) || errors.Is(err, queue.ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", queue.ErrDamaged, err)
}

// isDamage reports whether err is about a damaged file.
func isDamage(err error) bool { return errors.Is(err, queue.ErrDamaged) }

// open opens a file and reads all of it, or what can be read if it is damaged.
func open(path string) (*bbolt.DB, []stored, error) {
	var db *bbolt.DB
	err := guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("%s: in use by another process", path)
	}
	if err != nil {
		return nil, nil, asDamage(err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // it may have been created by hand
		return db, nil, err
	}
	err = asDamage(guarded(func() error { return makeBuckets(db) }))
	var content []stored
	if err == nil {
		content, err = read(db)
	}
	if err == nil {
		return db, content, nil
	}
	if !isDamage(err) {
		return db, nil, err
	}
	_ = guarded(db.Close)
	return nil, content, err
}

// read reads all entries. With an error that wraps queue.ErrDamaged it returns those it could
// read.
func read(db *bbolt.DB) ([]stored, error) {
	var content []stored
	var damage error
	err := view(db, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(records)).ForEach(func(k, v []byte) error {
			e, err := queue.Unmarshal(v)
			if err != nil || len(k) != 8 {
				damage = fmt.Errorf("record %x: %w", k, errors.Join(err, queue.ErrDamaged))
				return nil
			}
			content = append(content, stored{place{sequence: binary.BigEndian.Uint64(k), ref: queue.RefOf(e)}, e})
			return nil
		})
	})
	damage = errors.Join(damage, err)
	err = view(db, func(tx *bbolt.Tx) error {
		for i := range content {
			text := tx.Bucket([]byte(attempts)).Get(number(content[i].sequence))
			if text == nil {
				continue
			}
			if err := json.Unmarshal(text, &content[i].attempts); err != nil {
				damage = errors.Join(damage, queue.ErrDamaged, err)
			}
		}
		for _, name := range buckets()[2:] {
			if err := tx.Bucket([]byte(name)).ForEach(func(_, _ []byte) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	return content, asDamage(errors.Join(damage, err))
}

// makeBuckets creates missing buckets. If there are none it writes nothing, because the disk
// may be full.
func makeBuckets(db *bbolt.DB) error {
	missing := false
	err := db.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			missing = missing || tx.Bucket([]byte(name)) == nil
		}
		return nil
	})
	if err != nil || !missing {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// salvage reads what it can from a file that cannot be opened. It opens a copy read-only,
// because that needs less of the file to be intact, and because the failed attempt may still
// hold the lock.
func salvage(path string) []stored {
	whole, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	copied := path + ".salvage"
	if err := os.WriteFile(copied, whole, 0o600); err != nil { //nolint:gosec // next to the file that the operator named
		return nil
	}
	defer func() { _ = os.Remove(copied) }() // the original is kept anyway
	var content []stored
	_ = guarded(func() error { // any entry is better than none
		db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
		if err != nil {
			return err
		}
		defer func() { _ = guarded(db.Close) }()
		content, err = read(db)
		return err
	})
	return content
}
