package storing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/decide/engine"
)

// A file has the secret and its CRC-32C. A file of the secret alone, as written before,
// is read too.
const (
	tokenSecretSize = 52
	tokenSecretSum  = len(" 01234567\n")
)

// tokenSecret is the secret for lease and reservation tokens when counts are in memory.
// It may outlive the process only together with all counts: it is saved after the last
// snapshot and removed at the start. After a crash, counts since the last snapshot are
// lost, so older tokens must be invalid: settling one could refund something that is no
// longer counted.
type tokenSecret struct {
	path string // empty without a snapshot
	text []byte
}

// openTokenSecret returns the secret of the last run if its counts were restored, and
// otherwise a new one.
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
	errDamagedSecret = errors.New("damaged")
)

// take reads and removes the file.
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
	case !info.Mode().IsRegular(): // reading it could block or never end
		return nil, errors.Join(errNoSecret, os.Remove(s.path))
	case info.Size() > tokenSecretSize+int64(tokenSecretSum):
		return nil, errors.Join(errDamagedSecret, os.Remove(s.path))
	}
	text, err := os.ReadFile(s.path)
	if err == nil {
		text, err = readSecret(text)
	}
	return text, errors.Join(err, os.Remove(s.path))
}

// readSecret returns the secret in a file's text.
func readSecret(text []byte) ([]byte, error) {
	if len(text) == tokenSecretSize {
		return text, nil
	}
	if len(text) > tokenSecretSize {
		if secret := text[:tokenSecretSize]; string(text) == string(writtenSecret(secret)) {
			return secret, nil
		}
	}
	return nil, errDamagedSecret
}

// writtenSecret is the text of a secret's file.
func writtenSecret(secret []byte) []byte {
	return fmt.Appendf(nil, "%s %08x\n", secret, crc32.Checksum(secret, crc32.MakeTable(crc32.Castagnoli)))
}

// SaveSecret saves the token secret, if counts are saved. Call it after a successful
// [Store.SaveLast], when nothing is counted any more.
func (s *Store) SaveSecret() error {
	if s.token.path == "" {
		return nil
	}
	if err := atomicfile.Write(s.token.path, writtenSecret(s.token.text)); err != nil {
		return fmt.Errorf("the secret of leases and reservations was not saved: %w", err)
	}
	return nil
}
