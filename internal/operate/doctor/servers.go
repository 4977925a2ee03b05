package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/store/redis"
)

// wrongClock is how far clocks may differ.
const wrongClock = time.Second

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
			all = append(all, Finding{"store", Warn, is.Address + ": " + is.Err.Error(), "its persistence, replication and clock are not examined", "start it; its user needs +info and +time"})
			continue
		}
		if is.Info["role"] == "master" {
			all = append(all, persistence(is))
		} else if as != redis.Cluster {
			all = append(all, Finding{"replication", Fail, is.Address + ": replica of " + is.Info["master_host"] + ":" + is.Info["master_port"], "a replica accepts no writes: on_store_error of each rule decides", "set the address of the primary"})
		}
		all = append(all, clock(is))
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
