package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// A server that lacks what the scripts need is reported when it is connected, not by a
// syntax error for each request.
func TestOldServers(t *testing.T) {
	modern := redistest.Standalone(t)
	ancient := redistest.Standalone(t, "--rename-command", "HELLO", "")
	ctx := context.Background()
	for _, row := range []struct {
		server  *redistest.Server
		version string
		old     bool
	}{
		{modern, "6.0.1", true},
		{modern, "6.2.1", false},
		{modern, "8.0.1", false},
		{modern, "10.01", false},
		{modern, "x.y.z", false},
		{ancient, "5.0.1", true},
		{ancient, "4.0.1", true},
		{ancient, "7.0.1", false},
	} {
		o := redis.Options{Addresses: []string{redistest.Posing(t, row.server, row.version)}, Timeout: patient}
		db, err := redis.New(ctx, o)
		switch {
		case !row.old && err != nil:
			t.Errorf("%s: %v", row.version, err)
		case row.old && (!errors.Is(err, redis.ErrTooOld) || !errors.Is(err, store.ErrUnavailable)):
			t.Errorf("%s: %v, want ErrTooOld", row.version, err)
		case row.old && !strings.Contains(err.Error(), "headgate needs Redis 6.2 or later, or Valkey: this is Redis "+row.version):
			t.Errorf("%s: %v", row.version, err)
		}
		if err == nil {
			if err := db.CheckVersion(ctx); err != nil {
				t.Errorf("%s: %v", row.version, err)
			}
			_ = db.Close()
		}
	}
	// A user without the permission to ask is accepted.
	ancient.Do("ACL", "SETUSER", "shy", "on", ">secret", "~hg:*", "-@all", "+eval", "+evalsha", "+ping", "+auth", "+client",
		"+get", "+set", "+pttl", "+time", "+del", "+getrange", "+setrange", "+pexpire", "+pexpireat", "+pexpiretime")
	shy := open(t, redis.Options{Addresses: []string{redistest.Posing(t, ancient, "5.0.1")}, Username: "shy", Password: "secret", Timeout: patient})
	take(t, shy, one)
}

// A server that starts later is reported by the first call.
func TestOldServerThatComesLate(t *testing.T) {
	server := redistest.Standalone(t)
	address := redistest.Posing(t, server, "6.0.1")
	server.Kill()
	db := open(t, redis.Options{Addresses: []string{address}, Timeout: patient})
	if err := db.CheckVersion(context.Background()); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, redis.ErrTooOld) {
		t.Errorf("without a server: %v", err)
	}
	server.Restart()
	awaitTake(t, db)
	if err := db.CheckVersion(context.Background()); !errors.Is(err, redis.ErrTooOld) {
		t.Errorf("%v, want ErrTooOld", err)
	}
}
