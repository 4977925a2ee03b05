package redis_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/redis"
)

// TestErrorRepliesAreAnswers: a server that answers one request with an error is alive,
// so the circuit stays closed, and other keys and exhausted ones get their answers.
func TestErrorRepliesAreAnswers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		limit := headgate.Per(1, time.Hour)
		inner := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
		db := failsafe.New(inner, failsafe.Options{Timeout: patient, Breaker: failsafe.Breaker{Failures: 1}})
		take := func(key string) (store.Decision, error) {
			return store.Execute(t.Context(), db, store.Op{Key: key, Scope: "s", Rule: limit.Rule(), Cost: 1})
		}
		exhaust := func(key string) {
			t.Helper()
			for range 2 {
				if _, err := take(key); err != nil {
					t.Fatal(err)
				}
			}
		}
		refused := func(what, key string, kind error) {
			t.Helper()
			for range 3 {
				if d, err := take(key); !errors.Is(err, kind) || !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %+v %v", what, d, err)
				}
			}
			if d, err := take("old"); err != nil || d.Allowed {
				t.Errorf("%s: an exhausted key: %+v %v", what, d, err)
			}
		}
		exhaust("old")
		name := redis.KeyOf("hg", &store.Op{Key: "bad", Scope: "s", Rule: limit.Rule()})
		for _, command := range [][]string{{"LPUSH", name, "x"}, {"SET", name, "garbage"}, {"SET", name, "\xff\xff\xff"}} {
			server.Do("DEL", name)
			server.Do(command...)
			refused(fmt.Sprint(command), "bad", store.ErrRefused)
			if d, err := take(fmt.Sprint("other", command)); err != nil || !d.Allowed {
				t.Errorf("another key than %q: %+v %v", command, d, err)
			}
		}
		server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		refused("NOREPLICAS", "new", store.ErrReadOnly)
		server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		server.Do("REPLICAOF", "127.0.0.1", "1")
		refused("READONLY", "new", store.ErrReadOnly)
		server.Do("REPLICAOF", "NO", "ONE")
		if d, err := take("new"); err != nil || !d.Allowed {
			t.Errorf("when it may be written again: %+v %v", d, err)
		}
		if s := db.Stats(); s.Opened != 0 || s.Refused != 9 || s.ReadOnly != 6 || s.Failures != 15 {
			t.Errorf("%+v", s)
		}
	})
}

// TestKeyIsForbidden: the same for the answer that the user may not use a key.
func TestKeyIsForbidden(t *testing.T) {
	server := redistest.Standalone(t)
	server.Do("ACL", "SETUSER", "some", "on", ">p", "+@all", "~hg:*mine*")
	inner := open(t, redis.Options{Addresses: []string{server.Addr}, Username: "some", Password: "p", Timeout: patient})
	db := failsafe.New(inner, failsafe.Options{Timeout: patient, Breaker: failsafe.Breaker{Failures: 1}})
	for range 3 {
		op := store.Op{Key: "mine", Scope: "s", Rule: headgate.Per(9, time.Hour).Rule(), Cost: 1}
		if d, err := store.Execute(t.Context(), db, op); err != nil || !d.Allowed {
			t.Errorf("%+v %v", d, err)
		}
		op.Key = "others"
		if d, err := store.Execute(t.Context(), db, op); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%+v %v", d, err)
		}
	}
	if s := db.Stats(); s.Opened != 0 {
		t.Errorf("%+v", s)
	}
}

// TestForbiddenIsKnown: what the user may not do is told apart from all other refusals.
func TestForbiddenIsKnown(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		op := store.Op{Key: "mine", Scope: "s", Rule: headgate.Per(9, time.Hour).Rule(), Cost: 1}
		name := redis.KeyOf("hg", &op)
		for what, row := range map[string]struct {
			user      []string
			forbidden bool
		}{
			"no command":    {[]string{"~*", "+@all", "-evalsha", "-eval"}, true},
			"no key":        {[]string{"~other", "+@all"}, true},
			"a wrong value": {[]string{"~*", "+@all"}, false}, // with that text in it, and in the name of the user
		} {
			server.Do("DEL", name)
			server.Do("LPUSH", name, "NOPERM x")
			server.Do(append([]string{"ACL", "SETUSER", "NOPERM", "reset", "on", ">p"}, row.user...)...)
			db := open(t, redis.Options{Addresses: []string{server.Addr}, Username: "NOPERM", Password: "p", Timeout: patient})
			_, err := store.Execute(t.Context(), db, op)
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, redis.ErrForbidden) != row.forbidden {
				t.Errorf("%s: %v", what, err)
			}
			if _, _, err := db.Lacks(t.Context()); errors.Is(err, redis.ErrForbidden) != row.forbidden || row.forbidden && err == nil {
				t.Errorf("%s: lacks %v", what, err)
			}
		}
	})
}

// TestServerCannotSave: a server that accepts no writes because it cannot save still
// refuses exhausted keys.
func TestServerCannotSave(t *testing.T) {
	server := redistest.Standalone(t)
	inner := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	db := failsafe.New(inner, failsafe.Options{Timeout: patient, Breaker: failsafe.Breaker{Failures: 1}})
	op := store.Op{Key: "old", Scope: "s", Rule: headgate.Per(1, time.Hour).Rule(), Cost: 1}
	if d, err := store.Execute(t.Context(), db, op); err != nil || !d.Allowed {
		t.Fatalf("%+v %v", d, err)
	}
	if err := os.RemoveAll(server.Dir); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "save", "3600 1")
	server.Do("BGSAVE")
	for !strings.Contains(server.Do("INFO", "persistence"), "rdb_last_bgsave_status:err") {
		if t.Context().Err() != nil {
			t.Fatal("it could save")
		}
		runtime.Gosched()
	}
	for range 3 {
		op.Key = "new"
		if d, err := store.Execute(t.Context(), db, op); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%+v %v", d, err)
		}
		op.Key = "old"
		if d, err := store.Execute(t.Context(), db, op); err != nil || d.Allowed {
			t.Errorf("an exhausted key: %+v %v", d, err)
		}
	}
	if s := db.Stats(); s.Opened != 0 || s.ReadOnly != 3 {
		t.Errorf("%+v", s)
	}
}
