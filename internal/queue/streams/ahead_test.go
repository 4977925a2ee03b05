package streams_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A Redis whose clock was years ahead, and is put right, does not hold up what was queued
// then: neither by the leases of a process that was killed in the meantime, nor by its place
// among the processes, nor by requests whose sender it never answered.
func TestQueuesOfAClockThatWasAhead(t *testing.T) {
	server, b := redistest.Standalone(t), newBackend()
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}
	puts := node(t, o, "puts", b) // it is not started
	defer closing(t, puts)
	if _, err := puts.Accept(t.Context(), entry(0, 1)); err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSuffix(server.Do("KEYS", "hg:q:{*}:m"), ":m")
	const years = 10 * 365 * 24 * time.Hour
	ahead := time.Now().Add(years).UnixMilli()
	for n := range 8 {
		number := strconv.Itoa(n)
		// From here on, ids of the stream are in the future.
		server.Do("XDEL", base+":p:"+number, server.Do("XADD", base+":p:"+number, strconv.FormatInt(ahead, 10)+"-0", "e", "-"))
		server.Do("SET", base+":l:"+number, "killed/1.1", "PX", strconv.FormatInt(years.Milliseconds(), 10))
	}
	server.Do("ZADD", "hg:q:nodes", strconv.FormatInt(ahead, 10), "killed")
	const keys = 30 // on all partitions
	for key := 1; key < keys; key++ {
		receipt, err := puts.Accept(t.Context(), entry(key, 1))
		if err != nil {
			t.Fatal(err)
		}
		if key%2 == 0 {
			server.Do("HSET", base+":u", receipt.ID, "")
		}
	}
	late := node(t, o, "late", b)
	late.Start()
	defer closing(t, late)
	b.await(t, keys)
}
