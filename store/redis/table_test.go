package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redis"
)

// rows returns what has changed since a version, and the version now.
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
			if err := table.Put(ctx, name, value, later, most); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := one.Version(ctx); v != 0 || err != nil {
			t.Fatalf("of an empty table: %d, %v", v, err)
		}
		put(one, "a\x00\xff", "1", 3)
		put(one, "b", "2", 3)
		put(two, "c", "3", 3)
		text, version := rows(t, two, 0)
		if want := `"a\x00\xff"=1 "b"=2 "c"=3 `; text != want {
			t.Errorf("%s, want %s", text, want)
		}
		if v, err := one.Version(ctx); v != version || err != nil {
			t.Errorf("version %d, %v, want %d", v, err, version)
		}
		if err := one.Put(ctx, "d", "4", later, 3); !errors.Is(err, redis.ErrTableFull) {
			t.Errorf("a fourth row of three: %v", err)
		}
		put(two, "b", "5", 3) // in its place
		if ok, err := two.Delete(ctx, "c"); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		if ok, err := two.Delete(ctx, "c"); ok || err != nil {
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
		// What has ended long ago makes room.
		if err := one.Put(ctx, "d", "4", time.Now().Add(-2*time.Minute), 3); err != nil {
			t.Error(err)
		}
		put(two, "e", "6", 3)
		if text, _ := rows(t, one, now); text != `"e"=6 ` {
			t.Errorf("after the end: %s", text)
		}
		for _, key := range []string{"rows", "changes", "ends", "version"} {
			if ttl := server.Do("PTTL", "hg:{%ttest}:"+key); len(ttl) < 6 {
				t.Errorf("%s lives for %s ms", key, ttl)
			}
		}
		server.Kill()
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := one.Version(soon); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("without a server: %v", err)
		}
	})
}
