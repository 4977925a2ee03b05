package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/store/redis"
)

const (
	// slots is how many slots a cluster has.
	slots = 16384
	// lateAfter is how far a replica may be behind: it reports every second.
	lateAfter = 5 * time.Second
	// wrongClock is how far clocks may differ.
	wrongClock = time.Second
	// quorate is the number of primaries, or of sentinels, that can spare one.
	quorate = 3
)

// mode is what the servers are, by the configuration.
type mode = redis.Mode

// servers examines what the servers report about themselves.
func (i *Installation) servers(ctx context.Context, s *redis.Store, as mode) (all []Finding) {
	list, err := s.Servers(ctx, i.Now)
	if err != nil {
		return []Finding{{"store", Warn, "cannot ask the servers about themselves: " + err.Error(), "", ""}}
	}
	for n := range list {
		is := &list[n]
		if f, wrong := misused(is, as); wrong {
			all = append(all, f)
			continue
		}
		if is.Err != nil {
			all = append(all, Finding{"store", Warn, is.Address + ": " + is.Err.Error(), "its persistence, replication and clock are not examined", "start it; its user needs +info and +time, in a cluster +cluster|info too"})
			continue
		}
		all = append(all, replication(is, as)...)
		if is.Info["role"] == "master" {
			all = append(all, persistence(is))
		}
		all = append(all, clock(is))
	}
	if as == redis.Cluster {
		all = append(all, cluster(list)...)
	}
	return all
}

// misused returns a finding if a server is another kind than configured.
func misused(is *redis.Server, as mode) (f Finding, wrong bool) {
	f = Finding{Check: "store", Level: Fail, Why: "requests are answered with errors: on_store_error of each rule decides"}
	switch kind := is.Info["redis_mode"]; {
	case kind == "cluster" && as != redis.Cluster:
		f.What, f.Do = is.Address+" is a node of a cluster", "write redis+cluster:// in the URL of the store"
	case kind == "sentinel":
		f.What, f.Do = is.Address+" is a sentinel", "write redis+sentinel:// in the URL of the store, and the name of the primary at its end"
	case kind == "standalone" && as == redis.Cluster:
		f.Level, f.What, f.Why, f.Do = Warn, is.Address+" is not a cluster", "its persistence, replication and clock are not examined", "write redis:// in the URL of the store"
	default:
		return Finding{}, false
	}
	return f, true
}

// persistence examines what a restart of Redis forgets.
func persistence(is *redis.Server) Finding {
	const do = "set appendonly yes, unless counts may be lost"
	f := Finding{Check: "persistence", Level: OK}
	snapshots, asked := is.Config["save"]
	switch appends, every := is.Info["aof_enabled"] == "1", is.Config["appendfsync"]; {
	case appends && is.Info["aof_last_write_status"] == "err":
		f.Level, f.What, f.Why, f.Do = Fail, "the append-only file cannot be written", "Redis accepts no writes then, and on_store_error of each rule decides", "see the log of Redis: is its disk full?"
	case is.Info["rdb_last_bgsave_status"] == "err" && snapshots != "":
		f.Level, f.What, f.Why, f.Do = Fail, "the last snapshot failed", "Redis accepts no writes then, unless stop-writes-on-bgsave-error is no, and a restart forgets counts", "see the log of Redis: is its disk full, may it write to its folder?"
	case appends && every == "no":
		f.Level, f.What, f.Why, f.Do = Warn, "append-only file, appendfsync no", "a crash of the machine forgets what its system has not written yet, about half a minute", "set appendfsync everysec"
	case appends && every == "":
		f.What = "append-only file"
	case appends:
		f.What = "append-only file, appendfsync " + every
	case !asked:
		f.Level, f.What, f.Why, f.Do = Warn, "no append-only file, and whether there are snapshots is unknown", "a restart of Redis may forget all counts: each key has its whole limit again", do+"; with +config|get doctor can tell"
	case snapshots == "":
		f.Level, f.What, f.Why, f.Do = Warn, "nothing is saved", "a restart of Redis forgets all counts: each key has its whole limit again", do
	default:
		f.Level, f.What, f.Why, f.Do = Warn, "snapshots only (save "+snapshots+")", "a crash forgets what was counted since the last one", do
	}
	f.What = is.Address + ": " + f.What
	return f
}

// replication examines whether a server may be written to, and what a failover forgets.
func replication(is *redis.Server, as mode) []Finding {
	if is.Info["role"] == "master" {
		return primary(is, as)
	}
	f := Finding{Check: "replication", Level: OK, What: is.Address + ": replica of " + is.Info["master_host"] + ":" + is.Info["master_port"]}
	if is.Info["master_link_status"] == "down" {
		f.Level, f.What, f.Why, f.Do = Warn, f.What+", which it cannot reach", "after a failover to it, counts from before are back", "check the network, and masterauth of the replica"
	}
	if as != redis.Cluster {
		f.Level, f.Why, f.Do = Fail, "a replica accepts no writes: on_store_error of each rule decides", "set the address of the primary"
	}
	return []Finding{f}
}

// primary examines the replicas of a primary.
func primary(is *redis.Server, as mode) (all []Finding) {
	const failover = "a failover forgets what a replica does not have yet"
	list := replicas(is.Info)
	var behind time.Duration
	for _, r := range list {
		behind = max(behind, r.lag)
		switch {
		case r.state != "online":
			all = append(all, Finding{"replication", Warn, is.Address + ": replica " + r.address + " is not in step: " + r.state, failover, "wait; if it stays so, see the log of the replica"})
		case r.lag > lateAfter:
			all = append(all, Finding{"replication", Warn, is.Address + ": replica " + r.address + " has not answered for " + r.lag.String(), failover, "check the replica and its network"})
		}
	}
	least, _ := strconv.Atoi(is.Config["min-replicas-to-write"])
	good, err := strconv.Atoi(is.Info["min_slaves_good_slaves"]) // exists if min-replicas-to-write does
	switch {
	case err == nil && good < least:
		all = append(all, Finding{"replication", Fail, fmt.Sprintf("%s: min-replicas-to-write is %d, and %s in step", is.Address, least, are(good, "replica")), "Redis accepts no writes then, and on_store_error of each rule decides", "start replicas, or lower min-replicas-to-write"})
	case len(list) == 0 && as != redis.Standalone:
		all = append(all, Finding{"replication", Warn, is.Address + ": no replica", "if it fails, nothing takes its place", "add a replica"})
	case len(list) == 0:
		all = append(all, Finding{Check: "replication", Level: OK, What: is.Address + ": primary without replicas"})
	case len(all) == 0:
		all = append(all, Finding{Check: "replication", Level: OK, What: fmt.Sprintf("%s: primary, %s in step, at most %s behind", is.Address, are(len(list), "replica"), max(behind, time.Second))})
	}
	return all
}

// are returns a number of things and the verb.
func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}

// replica is one replica as its primary sees it.
type replica struct {
	address, state string
	lag            time.Duration // since it last answered
}

// replicas reads fields such as slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0.
func replicas(info map[string]string) (list []replica) {
	for n := 0; ; n++ {
		text, ok := info["slave"+strconv.Itoa(n)]
		if !ok {
			return list
		}
		parts := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(part, "=")
			parts[name] = value
		}
		seconds, _ := strconv.ParseInt(parts["lag"], 10, 32)
		list = append(list, replica{parts["ip"] + ":" + parts["port"], parts["state"], time.Duration(seconds) * time.Second})
	}
}

// clock compares the clock of a server with this machine's.
func clock(is *redis.Server) Finding {
	f := Finding{Check: "clock", Level: OK, What: is.Address + ": as on this machine"}
	if is.Ahead.Abs()-is.Within <= wrongClock {
		return f
	}
	direction := "ahead of"
	if is.Ahead < 0 {
		direction = "behind"
	}
	f.Level, f.What = Warn, fmt.Sprintf("%s: %s %s this machine", is.Address, is.Ahead.Abs().Round(time.Millisecond), direction)
	f.Why, f.Do = "counts follow the clock of Redis: hours and days begin by it, and after a failover to a correct one keys are refused or free for that much longer", "run NTP on both machines"
	return f
}

// cluster examines what the nodes say about the whole.
func cluster(list []redis.Server) (all []Finding) {
	size, nodes := 0, 0
	for n := range list {
		is := &list[n]
		if is.Err != nil {
			continue
		}
		number := func(name string) int {
			v, _ := strconv.Atoi(is.Cluster[name])
			return v
		}
		size, nodes = max(size, number("cluster_size")), max(nodes, number("cluster_known_nodes"))
		switch without := slots - number("cluster_slots_assigned"); {
		case without > 0:
			all = append(all, Finding{"cluster", Fail, fmt.Sprintf("%s: %d of %d slots belong to no server", is.Address, without, slots), "keys in them cannot be counted; by default the whole cluster stops", "run redis-cli --cluster fix"})
		case is.Cluster["cluster_state"] != "ok":
			all = append(all, Finding{"cluster", Fail, is.Address + ": cluster_state " + is.Cluster["cluster_state"], "on_store_error of each rule decides", "start the nodes that failed: redis-cli cluster nodes"})
		case number("cluster_slots_fail") > 0 || number("cluster_slots_pfail") > 0:
			all = append(all, Finding{"cluster", Warn, fmt.Sprintf("%s: the servers of %d slots do not answer", is.Address, number("cluster_slots_fail")+number("cluster_slots_pfail")), "on_store_error of each rule decides about their keys", "start the nodes that failed: redis-cli cluster nodes"})
		}
	}
	switch {
	case len(all) > 0 || size == 0:
	case size < quorate:
		all = append(all, Finding{"cluster", Warn, fmt.Sprintf("%s in the cluster", count(size, "primary node")), "a majority has to agree on a failover: with fewer than 3, one that fails is not replaced", "add primaries"})
	default:
		all = append(all, Finding{Check: "cluster", Level: OK, What: fmt.Sprintf("%d primaries among %d nodes serve all slots", size, nodes)})
	}
	return all
}

// sentinels examines whether the primary would be replaced.
func sentinels(list []redis.SentinelReport) (all []Finding) {
	const why = "if the primary fails, it is not replaced"
	var at []string
	quorum, most := "", 0
	for n := range list {
		is := &list[n]
		if is.Err != nil {
			all = append(all, Finding{"sentinels", Warn, is.Address + " does not answer: " + is.Err.Error(), "too few of them cannot replace the primary", "start it, or correct the URL of the store"})
			continue
		}
		at = append(at, is.Primary["ip"]+":"+is.Primary["port"])
		others, _ := strconv.Atoi(is.Primary["num-other-sentinels"])
		quorum, most = is.Primary["quorum"], max(most, others+1)
		switch flags := is.Primary["flags"]; {
		case is.NoQuorum != nil:
			all = append(all, Finding{"sentinels", Fail, is.Address + ": " + is.NoQuorum.Error(), why, "start the other sentinels, or correct their quorum"})
		case strings.Contains(flags, "down"):
			all = append(all, Finding{"sentinels", Fail, is.Address + ": the primary is down (" + flags + ")", "on_store_error of each rule decides until it is replaced", "start it; see the log of the sentinels"})
		}
	}
	slices.Sort(at)
	switch at = slices.Compact(at); {
	case len(at) > 1:
		all = append(all, Finding{"sentinels", Fail, "they name different primaries: " + strings.Join(at, ", "), "servers count in different places", "wait for the failover to end; see the log of the sentinels"})
	case most > 0 && most < quorate:
		all = append(all, Finding{"sentinels", Warn, are(most, "sentinel") + " not enough", "a majority has to agree: with fewer than 3, after one fails the primary is not replaced", "run 3 sentinels on 3 machines"})
	case len(all) == 0 && most > 0:
		all = append(all, Finding{Check: "sentinels", Level: OK, What: fmt.Sprintf("%d watch the primary %s, quorum %s", most, at[0], quorum)})
	}
	return all
}

// permissions examines which commands the user may run, also those of regions that share
// limits.
func permissions(ctx context.Context, s *redis.Store, r *config.Regions) Finding {
	var also []string
	if len(r.Peers) > 0 {
		also = redis.ExchangeNeeds()
	}
	lacks, known, err := s.Lacks(ctx, also...)
	f := Finding{Check: "permissions", Level: OK, What: "the user may run every command that headgate serve needs"}
	switch {
	case errors.Is(err, headgate.ErrUnavailable) && !errors.Is(err, redis.ErrForbidden): // says what to look at
		f = Finding{"store", Fail, err.Error(), "no script runs: on_store_error of each rule decides", ""}
	case err != nil:
		f.Level, f.What, f.Why, f.Do = Fail, err.Error(), "no script runs: on_store_error of each rule decides", "grant the user the permissions in docs/run/redis.md"
	case !known:
		f.What = "not examined: before version 7.0, Redis does not tell"
	case len(lacks) > 0:
		f.Level, f.What, f.Why, f.Do = Fail, "the user may not run "+strings.Join(lacks, ", ")+" on keys with the prefix", "requests, bans or overrides are answered with errors", "grant the user the permissions in docs/run/redis.md"
	}
	return f
}
