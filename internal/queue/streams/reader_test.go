package streams_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// entryOf returns an entry of a separate limit.
func entryOf(limit, number int) *queue.Entry {
	e := entry(limit, number)
	e.Rule = fmt.Sprintf("limit %d", limit)
	e.Scope = "api/" + e.Rule
	return e
}

// While one shard of a cluster does not answer, here the one in which processes announce
// themselves, the limits of the other shards are sent without a pause by the same processes.
// Then its own are sent too.
func TestSilentShardHoldsUpItsOwnLimits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Cluster(t, "--cluster-node-timeout", "15000") // no replica takes over during the test
	shardOf := func(key string) int { return set.Slot(key) * len(set.Primaries) / redistest.Slots }
	silent := shardOf("hg:q:nodes")
	o := streams.Options{Options: redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}}
	b := newBackend()
	nodes := []*queue.Queue{node(t, o, "first", b), node(t, o, "second", b)}
	for _, q := range nodes {
		q.Start()
		defer closing(t, q)
	}
	sent := 0
	accept := func(limit, number int) (tag string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		receipt, err := nodes[(limit+number)%2].Accept(ctx, entryOf(limit, number))
		if err != nil {
			t.Fatal(err)
		}
		sent++
		return receipt.ID[:12]
	}
	var held, others []int
	tags := map[string]*redistest.Server{} // of others
	for limit := 1; len(held) < 3 || len(others) < 4; limit++ {
		tag := accept(limit, 1)
		if shard := shardOf("{" + tag + "}"); shard == silent {
			held = append(held, limit)
		} else {
			others, tags[tag] = append(others, limit), set.Primaries[shard]
		}
	}
	b.await(t, sent)
	var leases map[string]string
	awaitTrue(t, func() bool { // each has half of the partitions of each limit
		leases = leasesOf(tags)
		share := map[string]int{}
		for partition, token := range leases {
			owner, _, _ := strings.Cut(token, "/")
			if owner == "" {
				return false
			}
			share[partition[:12]+owner]++
		}
		for _, n := range share {
			if n != 4 {
				return false
			}
		}
		return len(share) == 2*len(tags)
	})

	set.Primaries[silent].Pause()
	began := time.Now()
	number := 2
	for ; time.Since(began) < 7*time.Second; number++ { // longer than a lease
		for _, limit := range others {
			accept(limit, number)
		}
		b.await(t, sent)
	}
	if rounds := number - 2; rounds < 5 { // on an idle machine over a hundred; if each waited for a call to the shard, three
		t.Errorf("entries of others went through %d times in seven seconds", rounds)
	}
	for partition, token := range leasesOf(tags) {
		if token != leases[partition] {
			t.Errorf("the lease of %s went from %q to %q", partition, leases[partition], token)
		}
	}
	set.Primaries[silent].Resume()
	for _, limit := range held {
		accept(limit, number)
	}
	b.await(t, sent)
	b.inOrder(t)
	if n := b.by["first"] + b.by["second"]; n != sent {
		t.Errorf("%d entries were sent %d times", sent, n)
	}
}

// While the shard with the list of queues does not answer, a process that starts accepts and
// sends entries of other shards, and adds them to the list afterwards.
func TestSilentShardOfTheList(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Cluster(t, "--cluster-node-timeout", "15000")
	shardOf := func(key string) int { return set.Slot(key) * len(set.Primaries) / redistest.Slots }
	silent := shardOf("hg:q:limits")
	o := streams.Options{Options: redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}}
	elsewhere := o
	elsewhere.Prefix, elsewhere.Clock, elsewhere.Logger = "other", time.Now, slog.New(slog.DiscardHandler)
	other := streams.New(elsewhere)
	defer func() { _ = other.Close() }()
	tagOf := func(limit int) string {
		t.Helper()
		p := policy("", "")
		receipt, err := other.Put(t.Context(), entryOf(limit, 1), &p)
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID[:12]
	}
	var limits []int
	var tags []string
	for limit := 1; len(limits) < 3; limit++ {
		if tag := tagOf(limit); shardOf("{"+tag+"}") != silent {
			limits, tags = append(limits, limit), append(tags, tag)
		}
	}
	set.Primaries[silent].Pause()
	b := newBackend()
	q := node(t, o, "late", b)
	q.Start()
	defer closing(t, q)
	for _, limit := range limits {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := q.Accept(ctx, entryOf(limit, 1)); err != nil { // while the shard is silent
			t.Error(err)
		}
		cancel()
	}
	b.await(t, len(limits))
	set.Primaries[silent].Resume()
	for _, tag := range tags {
		awaitTrue(t, func() bool { return set.Primaries[silent].Do("HEXISTS", "hg:q:limits", tag) == "1" })
	}
}

// leasesOf returns the processes that send the partitions of limits.
func leasesOf(tags map[string]*redistest.Server) map[string]string {
	leases := map[string]string{}
	for tag, server := range tags {
		for n := range 8 {
			leases[fmt.Sprintf("%s/%d", tag, n)] = server.Do("GET", fmt.Sprintf("hg:q:{%s}:l:%d", tag, n))
		}
	}
	return leases
}

// A lease that was granted after the process had given up the call is not waited for: the
// process gets it when it asks again.
func TestAnUnheardLeaseIsTakenAgain(t *testing.T) {
	server := redistest.Standalone(t)
	b := newBackend()
	q := node(t, streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}, "only", b)
	q.Start()
	defer closing(t, q)
	receipt, err := q.Accept(t.Context(), entry(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, 1)
	for n := range 8 {
		key := fmt.Sprintf("hg:q:{%s}:l:%d", receipt.ID[:12], n)
		owner, _, _ := strings.Cut(server.Do("GET", key), "/")
		server.Do("SET", key, owner+"/999", "PX", "600000")
	}
	if _, err := q.Accept(t.Context(), entry(1, 2)); err != nil {
		t.Fatal(err)
	}
	b.await(t, 2)
}
