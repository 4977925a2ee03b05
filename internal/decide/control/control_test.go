package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/decide/control"
)

// An entry put on one node is active on the other from its next look at the table,
// until the entry ends.
func TestTwoNodes(t *testing.T) {
	clock := newClock()
	table := control.NewLocal(clock.Now)
	one, two := newNode(t, table, clock, 0), newNode(t, table, clock, 0)
	now := clock.Now()
	one.put(t, one.entry("a", "ann", "", now.Add(time.Minute)))
	one.put(t, one.entry("a", "ann", "50/minute", now.Add(time.Hour)))
	one.put(t, one.entry("b", "ann", "7/minute", now.Add(time.Hour)))
	if got := two.state("a", "ann", now); got != "5" {
		t.Errorf("before it looks: %s", got)
	}
	two.sync(t)
	for _, n := range []*node{one, two} {
		if got := n.state("a", "ann", now); got != "50 banned for 1m0s" {
			t.Errorf("a: %s", got)
		}
		if got := n.state("b", "ann", now); got != "7" {
			t.Errorf("b: %s", got)
		}
	}
	if ban, limit := two.Of(one.rules.Rule("api", "a").Scope, key("ann")); ban == nil || limit == nil || limit.Rate != "50/minute" || ban.By != "test" {
		t.Errorf("%+v, %+v", ban, limit)
	}
	if ok, err := two.Delete(context.Background(), one.entry("b", "ann", "7/minute", now)); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	changed := one.changed
	one.sync(t)
	one.sync(t)
	if got := one.state("b", "ann", now); got != "5" || one.changed != changed+1 {
		t.Errorf("after the end: %s, told %d times more, want once", got, one.changed-changed)
	}
	clock.advance(time.Minute)
	one.sync(t)
	if got := one.state("a", "ann", time.UnixMicro(0)); got != "50" {
		t.Errorf("a ban that is over is still there: %s", got)
	}
	if list := one.Entries(); len(list) != 1 || list[0].Kind != control.Limit {
		t.Errorf("%+v", list)
	}
	if err := two.Touch(context.Background()); err != nil {
		t.Error(err)
	}
	changed = one.changed
	if one.sync(t); one.changed != changed+1 {
		t.Error("a touch was not told")
	}
}

// Entries of a scope that is no more, under the same name, change nothing for those of the
// scope that is: whatever the order in which they are looked at.
func TestEntriesOfAnOldScope(t *testing.T) {
	clock := newClock()
	n := newNode(t, control.NewLocal(clock.Now), clock, 0)
	until := clock.Now().Add(time.Hour)
	for i := range 20 {
		old := n.entry("a", strconv.Itoa(i), "0/minute", until)
		old.Scope += "-old"
		n.put(t, old)
	}
	n.put(t, n.entry("a", "eve", "0/minute", until))
	for range 20 {
		n.SetRules(n.rules)
		n.sync(t)
		if got := n.state("a", "eve", clock.Now()); got != "0" {
			t.Fatalf("eve has a limit of %s, want 0", got)
		}
	}
}

// However many entries there are and however they change, a node that has seen every
// change agrees with one that reads everything at once.
func TestManyEntries(t *testing.T) {
	clock := newClock()
	table := control.NewLocal(clock.Now)
	n := newNode(t, table, clock, 0)
	now := clock.Now()
	n.sync(t)
	for i := range 1500 {
		n.put(t, n.entry("a", fmt.Sprint(i), []string{"", "7/minute"}[i%2], now.Add(time.Hour)))
		if i%3 == 0 {
			if _, err := n.Delete(context.Background(), n.entry("a", fmt.Sprint(i/2), []string{"", "7/minute"}[i/2%2], now)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := newNode(t, table, clock, 0)
	fresh.sync(t)
	for i := range 1500 {
		if got, want := n.state("a", fmt.Sprint(i), now), fresh.state("a", fmt.Sprint(i), now); got != want {
			t.Fatalf("%d: %s, want %s", i, got, want)
		}
	}
}

// Reloaded rules keep the entries, even after a time without the rule. A limit that the
// rule can no longer have has no effect.
func TestRulesReadAgain(t *testing.T) {
	clock := newClock()
	n := newNode(t, control.NewLocal(clock.Now), clock, 0)
	now := clock.Now()
	e := n.entry("a", "ann", "50/minute", now.Add(time.Hour))
	e.Burst = 60
	n.put(t, e)
	for _, row := range []struct{ text, want string }{
		{twoRules, "50"},
		{strings.ReplaceAll(twoRules, "name: a", "name: c"), ""},
		{strings.ReplaceAll(twoRules, "name: a, key: [user], rate: 5", "name: a, key: [user], rate: 9"), "50"},
		{strings.ReplaceAll(twoRules, "name: a, key: [user]", "name: a, algorithm: sliding_window, key: [user]"), "5"}, // has no burst
		{twoRules, "50"},
	} {
		rs := parse(t, row.text)
		n.SetRules(rs)
		n.engine.SetRules(rs)
		if n.rules = rs; row.want == "" {
			continue
		}
		if got := n.state("a", "ann", now); got != row.want {
			t.Errorf("%s: %s, want %s", row.text, got, row.want)
		}
	}
	if !strings.Contains(n.log.String(), "does not fit its rule") {
		t.Errorf("the log: %s", &n.log)
	}
}

// After any operations on any nodes, with a table that sometimes fails, all nodes have
// the entries of the table once they have looked.
func TestAllNodesComeToTheSame(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		clock := newClock()
		local := control.NewLocal(clock.Now)
		f := &flaky{local, r, 0.2}
		nodes := []*node{newNode(t, f, clock, 0), newNode(t, f, clock, 0), newNode(t, f, clock, 0)}
		ctx := context.Background()
		for range 300 {
			n := nodes[r.IntN(len(nodes))]
			rate := []string{"", "7/minute", "9/minute"}[r.IntN(3)]
			e := n.entry([]string{"a", "b"}[r.IntN(2)], fmt.Sprint(r.IntN(20)), rate, clock.Now().Add(time.Duration(1+r.IntN(300))*time.Second))
			switch r.IntN(4) {
			case 0:
				_ = n.Put(ctx, e) // may fail, with or without an effect
			case 1:
				_, _ = n.Delete(ctx, e)
			case 2:
				_ = n.Sync(ctx)
			case 3:
				clock.advance(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
		}
		f.often = 0
		fresh := newNode(t, local, clock, 0) // has not seen any of this
		for _, n := range append(nodes, fresh) {
			n.sync(t)
		}
		now := clock.Now()
		for _, n := range nodes {
			if got, want := n.Entries(), fresh.Entries(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s", seed, cmp.Diff(want, got))
			}
			for _, rule := range []string{"a", "b"} {
				for user := range 20 {
					if got, want := n.state(rule, fmt.Sprint(user), now), fresh.state(rule, fmt.Sprint(user), now); got != want {
						t.Fatalf("seed %d: %s %d: %s, want %s", seed, rule, user, got, want)
					}
				}
			}
		}
	}
}

// While the table is unreachable, the known entries stay active, and the log says so
// once.
func TestTableOutOfReach(t *testing.T) {
	clock := newClock()
	f := &flaky{control.NewLocal(clock.Now), rand.New(rand.NewPCG(1, 1)), 0}
	n := newNode(t, f, clock, 0)
	n.put(t, n.entry("a", "ann", "", clock.Now().Add(time.Hour)))
	f.often = 1
	for range 3 {
		if err := n.Sync(context.Background()); !errors.Is(err, errDown) {
			t.Errorf("Sync: %v", err)
		}
		clock.advance(time.Minute)
	}
	if err := n.Put(context.Background(), n.entry("a", "bob", "", clock.Now().Add(time.Hour))); !errors.Is(err, errDown) {
		t.Errorf("Put: %v", err)
	}
	if got := n.state("a", "ann", clock.Now()); got != "5 banned for 57m0s" {
		t.Errorf("%s", got)
	}
	f.often = 0
	n.sync(t)
	for _, message := range []string{"the last known ones stay active", "can be read again"} {
		if got := strings.Count(n.log.String(), message); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", message, got, &n.log)
		}
	}
}

// A table that cannot lose anything, such as a replaced file, is trusted.
func TestTableThatIsAnother(t *testing.T) {
	clock := newClock()
	old := control.NewLocal(clock.Now)
	swapped := &struct{ control.Table }{old}
	n := newNode(t, swapped, clock, 0)
	for i := range 5 {
		n.put(t, n.entry("a", fmt.Sprint(i), "", clock.Now().Add(time.Hour)))
	}
	replica := control.NewLocal(clock.Now)
	other := newNode(t, replica, clock, 0)
	other.put(t, other.entry("a", "0", "", clock.Now().Add(time.Hour)))
	swapped.Table = replica
	n.sync(t)
	if got := len(n.Entries()); got != 1 {
		t.Errorf("an older version: %d entries, want 1", got)
	}
	// If it has a newer version by chance, this is noticed after a minute.
	lost := control.NewLocal(clock.Now)
	another := newNode(t, lost, clock, 0)
	for i := range 9 {
		another.put(t, another.entry("b", fmt.Sprint(i), "", clock.Now().Add(time.Hour)))
	}
	swapped.Table = lost
	clock.advance(time.Minute)
	n.sync(t)
	if diff := cmp.Diff(another.Entries(), n.Entries()); diff != "" {
		t.Error(diff)
	}
}

func TestBounded(t *testing.T) {
	clock := newClock()
	n := newNode(t, control.NewLocal(clock.Now), clock, 2)
	later := clock.Now().Add(time.Hour)
	n.put(t, n.entry("a", "1", "", later))
	n.put(t, n.entry("a", "2", "", clock.Now().Add(time.Minute)))
	if err := n.Put(context.Background(), n.entry("a", "3", "", later)); !errors.Is(err, control.ErrFull) {
		t.Errorf("a third of two: %v", err)
	}
	n.put(t, n.entry("a", "2", "", clock.Now().Add(2*time.Minute))) // replaces it
	clock.advance(2 * time.Minute)
	n.put(t, n.entry("a", "3", "", later)) // the second has expired
	e := n.entry("a", "1", "", later)
	e.Reason = strings.Repeat("x", 10_000)
	if err := n.Put(context.Background(), e); err == nil {
		t.Error("an entry of 10 kB was taken")
	}
}

// A file has exactly the content of its table, or is damaged. Then all entries that were
// not hit are read, and nothing else.
func TestFile(t *testing.T) {
	clock := newClock()
	path := filepath.Join(t.TempDir(), "control")
	open := func() *control.Local {
		t.Helper()
		table, err := control.OpenLocal(path, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	n := newNode(t, open(), clock, 0)
	for i := range 5 {
		n.put(t, n.entry("a", fmt.Sprintf("%d\x00\xff\n", i), "", clock.Now().Add(time.Hour)))
	}
	if _, err := n.Delete(context.Background(), n.entry("a", "3\x00\xff\n", "", clock.Now())); err != nil {
		t.Error(err)
	}
	again := newNode(t, open(), clock, 0)
	again.sync(t)
	if diff := cmp.Diff(n.Entries(), again.Entries()); diff != "" || len(n.Entries()) != 4 {
		t.Error(diff)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	before := list(n.Entries())
	spoilt := func(at int, text []byte) []string {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := control.OpenLocal(path, clock.Now)
		if !errors.Is(err, control.ErrDamaged) {
			t.Fatalf("byte %d: %v", at, err)
		}
		rest := newNode(t, table, clock, 0)
		rest.sync(t)
		left := list(rest.Entries())
		for _, e := range left {
			if !slices.Contains(before, e) {
				t.Fatalf("byte %d: %s was never in it", at, e)
			}
		}
		return left
	}
	for i := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			if left := spoilt(i, flipped); len(left) < len(before)-2 { // the end of a line spoils two
				t.Fatalf("byte %d, bit %d: %q are left of %q", i, bit, left, before)
			}
		}
		if left := spoilt(i, whole[:i]); len(left) < bytes.Count(whole[:i], []byte("\n"))-1 {
			t.Fatalf("%d bytes: %q are left of %q", i, left, before)
		}
	}
}

// list returns the entries as text.
func list(entries []control.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%+v", e))
	}
	return out
}

// A file of before, whose entries have no checksums, is read, and written in the new
// form.
func TestOldFile(t *testing.T) {
	clock := newClock()
	path := filepath.Join(t.TempDir(), "control")
	table, err := control.OpenLocal(path, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, table, clock, 0)
	for i := range 3 {
		n.put(t, n.entry("a", strconv.Itoa(i), "", clock.Now().Add(time.Hour)))
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	for i, line := range bytes.SplitAfter(whole, []byte("\n")) {
		if i > 0 && len(line) > 0 {
			body = append(body, line[9:]...)
		}
	}
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	if err := os.WriteFile(path, append(fmt.Appendf(nil, "headgate control 1 %08x\n", sum), body...), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err = control.OpenLocal(path, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	again := newNode(t, table, clock, 0)
	again.sync(t)
	if diff := cmp.Diff(n.Entries(), again.Entries()); diff != "" || len(n.Entries()) != 3 {
		t.Error(diff)
	}
	again.put(t, again.entry("a", "3", "", clock.Now().Add(time.Hour)))
	if text, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(text, []byte("headgate control 2 ")) {
		t.Errorf("%.30q, %v", text, err)
	}
}

// A change that cannot be written is active, and the error says that it is not saved.
func TestFileThatCannotBeWritten(t *testing.T) {
	clock := newClock()
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	table, err := control.OpenLocal(filepath.Join(folder, "control"), clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, table, clock, 0)
	if err := n.Put(context.Background(), n.entry("a", "ann", "", clock.Now().Add(time.Hour))); !errors.Is(err, control.ErrNotSaved) {
		t.Errorf("%v", err)
	}
	if got := n.state("a", "ann", clock.Now()); got != "5 banned for 1h0m0s" {
		t.Error(got)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if ok, err := n.Delete(context.Background(), n.entry("a", "ann", "", clock.Now())); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// While nodes are replaced one by one, older ones read rows written by newer ones.
func TestRowsOfNewerNodes(t *testing.T) {
	clock := newClock()
	table := control.NewLocal(clock.Now)
	newer := newNode(t, table, clock, 0)
	newer.put(t, newer.entry("a", "ann", "", clock.Now().Add(time.Hour)))
	rows, _, err := table.Since(context.Background(), 0, 10)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	rows[0].Value = strings.Replace(rows[0].Value, `{"v":1`, `{"added_later":{"x":[1]},"v":1`, 1)
	if err := table.Put(context.Background(), rows[0], 100); err != nil {
		t.Fatal(err)
	}
	older := newNode(t, table, clock, 0)
	older.sync(t)
	if got, want := older.state("a", "ann", clock.Now()), newer.state("a", "ann", clock.Now()); got != want || len(older.Entries()) != 1 {
		t.Errorf("the older one has %q, the newer one %q\n%s", got, want, &older.log)
	}
}

// Rows written by other processes are not trusted blindly.
func TestStrangeRows(t *testing.T) {
	clock := newClock()
	table := control.NewLocal(clock.Now)
	n := newNode(t, table, clock, 0)
	n.put(t, n.entry("a", "ann", "", clock.Now().Add(time.Hour)))
	rows, _, err := table.Since(context.Background(), 0, 10)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	good := rows[0]
	for i, value := range []string{
		"", "x", "{}", strings.Replace(good.Value, `"v":1`, `"v":2`, 1), strings.Replace(good.Value, "ban", "bann", 1),
		strings.Replace(good.Value, `"until":`, `"until":9`, 1), strings.Replace(good.Value, `"until":`, `"until":-`, 1), good.Value,
	} {
		if err := table.Put(context.Background(), control.Row{Name: fmt.Sprint("row", i), Value: value, Until: clock.Now().Add(time.Hour)}, 100); err != nil {
			t.Fatal(err)
		}
	}
	n.sync(t)
	n.sync(t)
	if got := len(n.Entries()); got != 1 {
		t.Errorf("%d entries, want 1", got)
	}
	if got := strings.Count(n.log.String(), "ignored a ban or override that cannot be read"); got == 0 || got > 8 {
		t.Errorf("logged %d times:\n%s", got, &n.log)
	}
}

func TestWords(t *testing.T) {
	if control.Ban.String() != "ban" || control.Limit.String() != "limit" || control.Kind(9).String() != "kind(9)" {
		t.Error("words")
	}
}

// FuzzRow: no row crashes a node, and a row that it understands is written back
// unchanged.
func FuzzRow(f *testing.F) {
	f.Add(`{"v":1,"kind":"ban","domain":"api","rule":"a","scope":"api/a","key":"A2Fubg==","until":1800000000000,"created":1700000000000}`)
	f.Add(`{"v":1,"kind":"limit","domain":"api","rule":"a","scope":"api/a","key":"","rate":"50/minute","burst":7,"until":1800000000000,"created":0}`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, value string) {
		e, err := control.Decode(value)
		if err != nil {
			return
		}
		clock := newClock()
		if !e.Until.After(clock.Now()) {
			return
		}
		n := newNode(t, control.NewLocal(clock.Now), clock, 0)
		if err := n.Put(context.Background(), e); err != nil {
			t.Skip(err) // with everything escaped, it may be too long
		}
		if got := n.Entries(); len(got) != 1 || !cmp.Equal(got[0], *e) {
			t.Errorf("%+v, want %+v", got, e)
		}
	})
}
