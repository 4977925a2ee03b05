package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// rows returns the changes since a version, and the current version.
func rows(t *testing.T, table *redis.Table, since int64) (string, int64) {
	t.Helper()
	var text string
	for {
		rows, now, err := table.Since(context.Background(), since, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			return text, now
		}
		for _, r := range rows {
			if r.Deleted {
				text += fmt.Sprintf("-%q ", r.Name)
			} else {
				text += fmt.Sprintf("%q=%s ", r.Name, r.Value)
			}
			since = r.Version
		}
	}
}

func TestTable(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		server.Do("FLUSHALL")
		ctx, later := context.Background(), time.Now().Add(time.Hour)
		one := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}).Table("test")
		two := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}).Table("test")
		put := func(table *redis.Table, name, value string, most int) {
			t.Helper()
			if err := table.Put(ctx, redis.TableRow{Name: name, Value: value, Until: later}, most); err != nil {
				t.Fatal(err)
			}
		}
		empty, err := one.Look(ctx)
		if empty.Version != 0 || empty.Generation != 0 || empty.Identity == "" || err != nil {
			t.Fatalf("an empty table: %+v, %v", empty, err)
		}
		put(one, "a\x00\xff", "1", 3)
		put(one, "b", "2", 3)
		put(two, "c", "3", 3)
		text, version := rows(t, two, 0)
		if want := `"a\x00\xff"=1 "b"=2 "c"=3 `; text != want {
			t.Errorf("%s, want %s", text, want)
		}
		if s, err := one.Look(ctx); s.Version != version || s.Identity != empty.Identity || err != nil {
			t.Errorf("%+v, %v, want version %d of %s", s, err, version, empty.Identity)
		}
		if err := one.Put(ctx, redis.TableRow{Name: "d", Value: "4", Until: later}, 3); !errors.Is(err, redis.ErrTableFull) {
			t.Errorf("a fourth row of three: %v", err)
		}
		put(two, "b", "5", 3) // replaces it
		if ok, err := two.Delete(ctx, redis.TableRow{Name: "c"}, 3); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		if ok, err := two.Delete(ctx, redis.TableRow{Name: "c"}, 3); ok || err != nil {
			t.Errorf("again: %v, %v", ok, err)
		}
		put(one, "d", "4", 3)
		text, now := rows(t, one, version)
		if want := `"b"=5 -"c" "d"=4 `; text != want {
			t.Errorf("since then %s, want %s", text, want)
		}
		if err := one.Touch(ctx); err != nil {
			t.Error(err)
		}
		if text, touched := rows(t, one, now); text != "" || touched <= now {
			t.Errorf("after a touch: %q, %d, before %d", text, touched, now)
		}
		// Rows that ended long ago free space.
		if err := one.Put(ctx, redis.TableRow{Name: "f", Value: "4", Until: time.Now().Add(-2 * time.Minute)}, 4); err != nil {
			t.Error(err)
		}
		put(two, "e", "6", 4)
		if text, _ := rows(t, one, now); text != `"e"=6 ` {
			t.Errorf("after the end: %s", text)
		}
		// No key of it has an end, so a server that only evicts keys with one does not
		// evict it.
		for _, key := range []string{"rows", "changes", "ends", "version", "store"} {
			if ttl := server.Do("PTTL", "hg:{%ttest}:"+key); ttl != "-1" {
				t.Errorf("%s lives for %s ms", key, ttl)
			}
		}
		server.Kill()
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := one.Look(soon); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("without a server: %v", err)
		}
	})
}

// TestTableRestored: lost rows are written back with their versions, and change nothing
// that is newer. A table of which the server has lost a part is reset.
func TestTableRestored(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		server.Do("FLUSHALL")
		ctx, later := context.Background(), time.Now().Add(time.Hour)
		table := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}).Table("test")
		look := func() redis.TableState {
			t.Helper()
			state, err := table.Look(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return state
		}
		put := func(name, value string, known int64) {
			t.Helper()
			if err := table.Put(ctx, redis.TableRow{Name: name, Value: value, Until: later, Version: known}, 9); err != nil {
				t.Fatal(err)
			}
		}
		fill := func() []redis.TableRow {
			t.Helper()
			for _, name := range []string{"a", "b", "c"} {
				put(name, name+"1", 0)
			}
			if _, err := table.Delete(ctx, redis.TableRow{Name: "c"}, 9); err != nil {
				t.Fatal(err)
			}
			rows, _, err := table.Since(ctx, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		restore := func(known []redis.TableRow, want int) {
			t.Helper()
			if n, err := table.Restore(ctx, known); n != want || err != nil {
				t.Errorf("%d taken, %v, want %d", n, err, want)
			}
		}
		const all = `"a"=a1 "b"=b1 -"c" `
		for _, part := range []string{"rows", "changes", "ends", "version", "store", "all"} {
			server.Do("FLUSHALL")
			known, before := fill(), look()
			if server.Do("DEL", "hg:{%ttest}:"+part); part == "all" {
				server.Do("FLUSHALL")
			}
			lost := look()
			if lost.Identity == before.Identity {
				t.Errorf("without %s: %+v as before", part, lost)
			}
			if part != "store" { // without it, the rest is complete
				if text, _ := rows(t, table, 0); text != "" {
					t.Errorf("without %s there is still %s", part, text)
				}
				restore(known, 3)
				if again := look(); again.Generation != lost.Generation+1 || again.Identity != lost.Identity || again.Version <= before.Version {
					t.Errorf("%+v is followed by %+v", lost, again)
				}
			}
			restore(known, 0)
			if text, _ := rows(t, table, 0); text != all {
				t.Errorf("without %s: %s", part, text)
			}
		}
		// A deletion is remembered even if no row is left.
		server.Do("FLUSHALL")
		put("a", "a1", 0)
		if _, err := table.Delete(ctx, redis.TableRow{Name: "a"}, 9); err != nil {
			t.Fatal(err)
		}
		before := look()
		server.Do("DEL", "hg:{%ttest}:changes", "hg:{%ttest}:ends")
		if lost := look(); lost.Identity == before.Identity {
			t.Errorf("without changes and ends: %+v as before", lost)
		}
		// Newer rows and deletions stay.
		known := fill()
		put("b", "b2", 0)
		if _, err := table.Delete(ctx, redis.TableRow{Name: "a"}, 9); err != nil {
			t.Fatal(err)
		}
		restore(known, 0)
		if text, _ := rows(t, table, known[2].Version); text != `"b"=b2 -"a" ` {
			t.Error(text)
		}
		// A caller that knows a lost row can delete it, and it does not come back.
		server.Do("FLUSHALL")
		if ok, err := table.Delete(ctx, redis.TableRow{Name: "a", Value: "a1", Version: known[2].Version}, 9); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		restore(known, 2)
		if text, _ := rows(t, table, 0); text != `"b"=b1 -"c" -"a" ` {
			t.Error(text)
		}
		// A change by a caller that knows a later version gets an even later one,
		// whatever the server's clock says.
		ahead := look().Version + int64(time.Hour/time.Microsecond)
		put("d", "d1", ahead)
		if now := look().Version; now <= ahead {
			t.Errorf("version %d after %d", now, ahead)
		}
		// Expired rows are not restored.
		restore([]redis.TableRow{{Name: "e", Value: "e1", Version: ahead * 2, Until: time.Now().Add(-time.Second)}}, 0)
	})
}

// TestTableOnAFullServer: expired rows may be removed while nothing else can be
// written, and that does not count as a loss.
func TestTableOnAFullServer(t *testing.T) {
	server := redistest.Standalone(t, "--maxmemory-policy", "noeviction")
	ctx := context.Background()
	table := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}).Table("test")
	// The second change removes expired rows; if the third had to do that, there would
	// be space for it.
	for i, end := range []time.Duration{-2 * time.Minute, time.Hour} {
		if err := table.Put(ctx, redis.TableRow{Name: string(rune('a' + i)), Value: "1", Until: time.Now().Add(end)}, 9); err != nil {
			t.Fatal(err)
		}
	}
	before, err := table.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if err := table.Put(ctx, redis.TableRow{Name: "c", Value: "1", Until: time.Now().Add(time.Hour)}, 9); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without room: %v", err)
	}
	after, err := table.Look(ctx)
	if before.Now = after.Now; err != nil || after != before {
		t.Errorf("%+v, %v, want %+v", after, err, before)
	}
	if text, _ := rows(t, table, 0); text != `"b"=1 ` {
		t.Error(text)
	}
}
