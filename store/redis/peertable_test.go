package redis_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// TestPeerTable: a region reads the table of another one with a user who may only read,
// and merges it into its own.
func TestPeerTable(t *testing.T) {
	redistest.Each(t, func(t *testing.T, theirs *redistest.Server) {
		theirs.Do("FLUSHALL")
		ours := redistest.Standalone(t)
		theirs.Do(append([]string{"ACL", "SETUSER", "headgate-reader"}, strings.Fields(readerACL)...)...)
		ctx, later := context.Background(), time.Now().Add(time.Hour).Truncate(time.Millisecond)
		there := open(t, redis.Options{Addresses: []string{theirs.Addr}, Timeout: patient}).Table("control")
		here := open(t, redis.Options{Addresses: []string{ours.Addr}, Timeout: patient}).Table("control")
		ex, err := redis.NewExchange(redis.Options{Addresses: []string{ours.Addr}}, map[string]redis.Options{
			"us": {Addresses: []string{theirs.Addr}, Username: "headgate-reader", Password: "secret"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ex.Close()
		peer, err := ex.Table("us", "control")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ex.Table("ap", "control"); err == nil {
			t.Error("an unknown region has a table")
		}
		if state, mark, err := peer.Look(ctx, "eu"); state.Identity != "" || state.Version != 0 || mark != "" || err != nil {
			t.Fatalf("before anything was written: %+v, %q, %v", state, mark, err)
		}
		for _, name := range []string{"a\x00", "b", "c"} {
			if err := there.Put(ctx, redis.TableRow{Name: name, Value: name + "!", Until: later}, 10); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := there.Delete(ctx, redis.TableRow{Name: "b"}, 10); err != nil {
			t.Fatal(err)
		}
		state, _, err := peer.Look(ctx, "eu")
		if own, _ := there.Look(ctx); err != nil || state.Identity != own.Identity || state.Version != own.Version || state.Now.Before(time.Now().Add(-time.Minute)) {
			t.Fatalf("%+v, want %+v: %v", state, own, err)
		}
		got, err := peer.Since(ctx, state, 0, 10)
		if err != nil || len(got) != 3 || got[0].Name != "a\x00" || got[0].Value != "a\x00!" || !got[0].Until.Equal(later) || !got[2].Deleted || got[2].Name != "b" {
			t.Fatalf("%+v, %v", got, err)
		}
		if some, err := peer.Since(ctx, state, got[0].Version, 1); err != nil || len(some) != 1 || some[0].Name != "c" {
			t.Errorf("%+v, %v", some, err)
		}
		if none, err := peer.Since(ctx, state, state.Version, 1); err != nil || len(none) != 0 {
			t.Errorf("%+v, %v", none, err)
		}
		merge := func(want redis.TableMerged, mark string, rows ...redis.TableMerge) {
			t.Helper()
			if is, err := here.Merge(ctx, &redis.TableNews{Region: "us", Mark: mark, Rows: rows}, 2); is != want || err != nil {
				t.Errorf("%+v, want %+v: %v", is, want, err)
			}
			if is, err := here.Mark(ctx, "us"); is != mark && want.Changed+want.Full == 0 || err != nil {
				t.Errorf("mark %q, want %q: %v", is, mark, err)
			}
		}
		far := time.Now().Add(time.Hour).UnixMicro()
		merge(redis.TableMerged{Written: 1}, "one", redis.TableMerge{Name: "a", Value: "1", Above: far, Until: later})
		at, _ := here.Look(ctx)
		if at.Version != far+1 {
			t.Errorf("version %d, want %d: it must exceed what it has merged", at.Version, far+1)
		}
		merge(redis.TableMerged{Changed: 1}, "two", redis.TableMerge{Name: "a", Value: "2", Was: far, Until: later})
		merge(redis.TableMerged{Written: 2}, "two", redis.TableMerge{Name: "a", Value: "2", Was: far + 1, Until: later}, redis.TableMerge{Name: "b", Value: "2", Until: later})
		merge(redis.TableMerged{Full: 1}, "three", redis.TableMerge{Name: "c", Value: "2", Until: later})
		merge(redis.TableMerged{}, "four")
		if text, _ := rows(t, here, 0); text != `"a"=2 "b"=2 ` {
			t.Error(text)
		}
		// Without its values, no row counts as deleted.
		theirs.Do("DEL", "hg:{%tcontrol}:rows")
		if got, err := peer.Since(ctx, state, 0, 10); err == nil {
			t.Errorf("a table without a part was read: %+v", got)
		}
		if _, err := there.Look(ctx); err != nil { // it begins again
			t.Fatal(err)
		}
		if got, err := peer.Since(ctx, state, 0, 10); err != nil || len(got) > 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if err := there.Put(ctx, redis.TableRow{Name: "d", Value: "4", Until: later}, 10); err != nil {
			t.Fatal(err)
		}
		if got, err := peer.Since(ctx, state, 0, 10); err == nil {
			t.Errorf("another table was read: %+v", got)
		}
	})
}

// The docs tell operators to create the user with which these tests read.
func TestReaderIsThatOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/many/regions.md")
	if err != nil {
		t.Fatal(err)
	}
	if line := "\n    ACL SETUSER headgate-reader " + readerACL + "\n"; !strings.Contains(string(page), line) {
		t.Errorf("docs/many/regions.md does not contain %q", line)
	}
}
