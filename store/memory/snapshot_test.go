package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// at returns a clock that stands still.
func at(now int64) Option { return WithClock(func() time.Time { return time.UnixMicro(now) }) }

// used returns a store in which n keys are exhausted under each limit, and the peeks
// that show it.
func used(t testing.TB, n int, options ...Option) (*Store, []store.Op) {
	t.Helper()
	s := New(append([]Option{at(t0)}, options...)...)
	var peeks []store.Op
	for i := range n {
		for j, limit := range everyLimit() {
			op := store.Op{Key: fmt.Sprint("key", i), Scope: fmt.Sprint(j), Rule: limit.Rule(), Cost: 1 + int64(i%10)}
			if _, err := store.Execute(t.Context(), s, op); err != nil {
				t.Fatal(err)
			}
			op.Kind = store.KindPeek
			peeks = append(peeks, op)
		}
	}
	credit := store.Op{
		Key: "paid", Rule: headgate.PerMinute(1).Rule(), Kind: store.KindGrant, Cost: 5, Duration: time.Hour,
	}
	if _, err := store.Execute(t.Context(), s, credit); err != nil {
		t.Fatal(err)
	}
	credit.Kind = store.KindPeek
	return s, append(peeks, credit)
}

func answers(t testing.TB, s *Store, ops []store.Op) []store.Decision {
	t.Helper()
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(t.Context(), s, ops, out, store.Independent); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSnapshotKeepsAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		into []Option
	}{
		{"same size", nil},
		{"one shard", []Option{WithMaxKeys(4000)}},
		{"more shards", []Option{WithMaxKeys(10_000_000)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, peeks := used(t, 300)
			want := answers(t, s, peeks)
			var file bytes.Buffer
			if err := s.Save(&file); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(file.String(), "key1") {
				t.Error("a key is in the snapshot")
			}
			again := New(append([]Option{at(t0)}, c.into...)...)
			if err := again.Load(&file); err != nil {
				t.Fatal(err)
			}
			for i, got := range answers(t, again, peeks) {
				if got != want[i] {
					t.Fatalf("%s: %+v, was %+v", peeks[i].Rule, got, want[i])
				}
			}
			checkShards(t, again)
		})
	}
}

// TestSnapshotIsPrivate: only the owner can read a snapshot, and an existing file at
// the name of the new one cannot redirect it.
func TestSnapshotIsPrivate(t *testing.T) {
	folder := t.TempDir()
	path, other := filepath.Join(folder, "state"), filepath.Join(folder, "other")
	for name, put := range map[string]func() error{
		"nothing":    func() error { return nil },
		"an old one": func() error { return os.WriteFile(path+".new", []byte("x"), 0o644) },
		"a link":     func() error { return os.Symlink(other, path+".new") },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if err := New().SaveFile(path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s at path.new: mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := os.Lstat(other); err == nil {
		t.Error("the snapshot was written through a link")
	}
}

// TestRestartRefillsNothing restarts right after a bucket has been emptied.
func TestRestartRefillsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	limit := headgate.PerHour(5)
	s := New()
	op := store.Op{Key: "k", Rule: limit.Rule(), Cost: 5}
	if d, _ := store.Execute(t.Context(), s, op); !d.Allowed {
		t.Fatal("refused at first")
	}
	if err := s.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	s = New()
	if err := s.LoadFile(path); err != nil {
		t.Fatal(err)
	}
	op.Cost = 1
	if d, _ := store.Execute(t.Context(), s, op); d.Allowed {
		t.Error("the restart refilled the bucket")
	}
	if err := s.Load(bytes.NewReader(nil)); err == nil {
		t.Error("loaded into a store in use")
	}
}

// TestClockSetBack loads a snapshot of next year.
func TestClockSetBack(t *testing.T) {
	const year = int64(365 * 24 * time.Hour / time.Microsecond)
	s, peeks := used(t, 30)
	want := answers(t, s, peeks)
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		t.Fatal(err)
	}
	again := New(at(t0 - year))
	if err := again.Load(&file); err != nil {
		t.Fatal(err)
	}
	for i, got := range answers(t, again, peeks) {
		if got.Allowed != want[i].Allowed && peeks[i].Rule.Algorithm != store.SlidingBuckets {
			t.Errorf("%s: allowed %t, was %t", peeks[i].Rule, got.Allowed, want[i].Allowed)
		}
		// A calendar window is where it was in the year.
		if got.ResetAfter > 2*want[i].ResetAfter+time.Minute {
			t.Errorf("%s: reset after %s, was %s", peeks[i].Rule, got.ResetAfter, want[i].ResetAfter)
		}
	}
}

// TestCountsOfTheFuture: keys counted ten years ahead, by a clock that was corrected
// before the snapshot, become free as if they had been counted at the time of saving;
// keys counted an hour ago do not change.
func TestCountsOfTheFuture(t *testing.T) {
	const year = int64(366 * 24 * time.Hour / time.Microsecond)
	for _, kind := range []store.Kind{store.KindTake, store.KindCharge} {
		s := New(at(t0))
		var ops []store.Op
		for i, limit := range append(everyLimit(), headgate.Concurrent(3)) {
			for _, when := range []int64{10 * year, -3_600_000_000} {
				op := store.Op{Key: fmt.Sprint(i, when > 0), Rule: limit.Rule(), Kind: kind, Cost: limit.Burst(), At: t0 + when}
				if _, err := store.Execute(t.Context(), s, op); err != nil {
					t.Fatal(err)
				}
				op.Kind, op.At = store.KindPeek, 0
				op.Cost = 1
				ops = append(ops, op)
			}
		}
		want := answers(t, s, ops)
		var file bytes.Buffer
		if err := s.Save(&file); err != nil {
			t.Fatal(err)
		}
		again := New(at(t0))
		if err := again.Load(&file); err != nil {
			t.Fatal(err)
		}
		for i, got := range answers(t, again, ops) {
			if i%2 == 1 && got != want[i] {
				t.Errorf("%s, of an hour ago: %+v, was %+v", ops[i].Rule, got, want[i])
			}
			if r := ops[i].Rule; i%2 == 0 && got.RetryAfter > 2*time.Duration(max(r.Period, 1))*time.Microsecond+366*24*time.Hour*time.Duration(min(int64(r.Calendar), 1)) {
				t.Errorf("%s, of the future: %+v", ops[i].Rule, got)
			}
		}
	}
}

func TestDamagedSnapshots(t *testing.T) {
	s, _ := used(t, 20)
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	try := func(what string, b []byte) {
		t.Helper()
		into := New(at(t0))
		if err := into.Load(bytes.NewReader(b)); !errors.Is(err, ErrDamagedSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
		if n := into.Stats(); n.Keys != 0 || n.Bytes != 0 {
			t.Errorf("%s: left %+v", what, n)
		}
	}
	for n := 0; n < len(whole); n += 1 + n/20 {
		try(fmt.Sprint("cut at ", n), whole[:n])
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		b := bytes.Clone(whole)
		i := rng.IntN(len(b))
		b[i] ^= 1 << rng.IntN(8)
		try(fmt.Sprint("a flipped bit in byte ", i), b)
	}
	try("a text", []byte("rules:\n  - name: login\n"))
	huge := bytes.Clone(whole[:len(magic)])
	try("a huge length", append(huge, 255, 255, 255, 255, 0, 0, 0, 0, 1, 2, 3))
}

// A device in place of a file is not the place of a snapshot, and is not moved.
func TestSnapshotInADevice(t *testing.T) {
	if err := New().LoadFile(os.DevNull); err == nil || errors.Is(err, ErrDamagedSnapshot) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
}

func TestSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := New()
	if err := s.LoadFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, want := range []string{path + ".damaged", path + ".damaged-2"} {
		if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.LoadFile(path); !errors.Is(err, ErrDamagedSnapshot) || !strings.Contains(err.Error(), path) {
			t.Errorf("nonsense: %v", err)
		}
		if to, err := SetAside(path); err != nil || to != want {
			t.Errorf("set aside to %s, %v", to, err)
		}
	}
	if err := s.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
}

// FuzzLoad gives the loader frames with correct checksums and arbitrary content, and
// then uses the loaded store.
func FuzzLoad(f *testing.F) {
	s, peeks := used(f, 2)
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes()[len(magic):])
	ops := make([]store.Op, 0, 4*len(peeks))
	for _, op := range peeks {
		for _, k := range []store.Kind{store.KindPeek, store.KindTake, store.KindRefund, store.KindCharge} {
			op.Kind = k
			ops = append(ops, op)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		into := New(at(t0), WithMaxKeys(50), WithMaxBytes(1<<16))
		if err := into.Load(bytes.NewReader(resealed(b))); err != nil {
			if n := into.Stats(); n.Keys != 0 {
				t.Errorf("left %+v with error %v", n, err)
			}
			return
		}
		answers(t, into, ops)
		checkShards(t, into)
	})
}

// resealed returns b as a snapshot with corrected checksums.
func resealed(b []byte) []byte {
	out := []byte(magic)
	for len(b) >= 8 {
		n := min(int(binary.LittleEndian.Uint32(b)), len(b)-8)
		payload := b[8 : 8+n]
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
		out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
		out = append(out, payload...)
		b = b[8+n:]
	}
	return out
}
