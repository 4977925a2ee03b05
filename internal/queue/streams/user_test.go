package streams_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// The user in docs/run/redis.md may do what a queue does.
func TestUserOfTheDocs(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	const user = "on >secret resetkeys ~hg:* resetchannels -@all +evalsha +eval +get +set +getrange +setrange +pttl +pexpire +pexpireat +pexpiretime +del +time +ping +hello +auth +client +@hash +@sortedset +persist +exists +@stream"
	if got := server.Do(append([]string{"ACL", "SETUSER", "headgate"}, strings.Fields(user)...)...); got != "OK" {
		t.Fatal(got)
	}
	b := newBackend()
	q := node(t, streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Username: "headgate", Password: "secret"}}, "one", b)
	q.Start()
	var ids []string
	for number := range 4 {
		e := entry(1, number+1)
		e.Header = http.Header{"Idempotency-Key": {"once"}, "N": {fmt.Sprint(number)}}
		r, err := q.Accept(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	b.await(t, 4)
	if _, err := q.Find(t.Context(), ids[3]); err != nil {
		t.Error(err)
	}
	if _, err := q.Drop(t.Context(), ids); err != nil {
		t.Error(err)
	}
	if _, err := q.Retry(t.Context(), ids); err != nil {
		t.Error(err)
	}
	if _, err := q.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	closing(t, q)
	if log := server.Do("ACL", "LOG"); log != "" {
		t.Error(log)
	}
}
