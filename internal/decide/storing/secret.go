package storing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/decide/engine"
)

// tokenSecretSize is how many bytes the file of a token secret has.
const tokenSecretSize = 52

// tokenSecret is what the tokens of leases and reservations are sealed with
// where the counts are in memory. It outlives the process together with the
// counts, and only with all of them: it is saved after a last snapshot that
// nothing can follow, and taken away at the start. After a crash, when what
// came since the last snapshot is forgotten, tokens of before are unknown: to
// settle one could give back what is not counted any more.
type tokenSecret struct {
	path string // empty without a snapshot
	text []byte
}

// openTokenSecret returns that of the last run if its counts were restored, and
// else a new one.
func (s *Store) openTokenSecret(restored bool) engine.Option { //nolint:revive // a fact, not a mode
	t := &s.token
	t.path = s.FileFor("secret")
	if old, err := t.take(); err != nil {
		s.Logger.Warn("leases and reservations of the last run are lost", "file", t.path, "err", err)
	} else if restored {
		t.text = old
	}
	if t.text == nil {
		t.text = []byte(rand.Text() + rand.Text())
	}
	return engine.WithSecret(func(context.Context) ([]byte, error) { return t.text, nil })
}

var (
	errNoSecret      = errors.New("not a regular file")
	errDamagedSecret = fmt.Errorf("damaged: want %d bytes", tokenSecretSize)
)

// take reads the file, and takes it away.
func (s *tokenSecret) take() ([]byte, error) {
	if s.path == "" {
		return nil, nil
	}
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // it would be waited for, or be without end
		return nil, errors.Join(errNoSecret, os.Remove(s.path))
	case info.Size() != tokenSecretSize:
		return nil, errors.Join(errDamagedSecret, os.Remove(s.path))
	}
	text, err := os.ReadFile(s.path)
	if err == nil && len(text) != tokenSecretSize {
		err = errDamagedSecret
	}
	return text, errors.Join(err, os.Remove(s.path))
}

// SaveSecret saves the secret of tokens, if counts are saved. It comes after a last
// [Store.SaveLast] that went well, when nothing is counted any more.
func (s *Store) SaveSecret() error {
	if s.token.path == "" {
		return nil
	}
	if err := atomicfile.Write(s.token.path, s.token.text); err != nil {
		return fmt.Errorf("the secret of leases and reservations was not saved: %w", err)
	}
	return nil
}
