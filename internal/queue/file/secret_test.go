package file_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/queue"
)

// The secret stays as long as the file.
func TestSecretStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	var secrets [2][]byte
	for i := range secrets {
		s, _ := open(t, path)
		for range 2 {
			got, err := s.Secret(t.Context())
			if err != nil || len(got) != queue.SecretSize || secrets[i] != nil && !bytes.Equal(got, secrets[i]) {
				t.Fatalf("%x, %v", got, err)
			}
			secrets[i] = got
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other, _ := open(t, filepath.Join(t.TempDir(), "queue"))
	third, _ := other.Secret(t.Context())
	if !bytes.Equal(secrets[0], secrets[1]) || bytes.Equal(third, secrets[0]) {
		t.Errorf("%x, %x, another file: %x", secrets[0], secrets[1], third)
	}
}
