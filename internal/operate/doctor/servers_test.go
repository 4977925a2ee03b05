package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store/redis"
)

func told(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Level, f.Check, f.What)
		if f.Level != OK && (f.Why == "" || f.Do == "") {
			fmt.Fprintf(&b, "%s says neither why nor what to do\n", f.What)
		}
	}
	return b.String()
}

// What takes long to happen to a real Redis: its answers, and the findings.
func TestServersReport(t *testing.T) {
	t.Parallel()
	master := func(pairs ...string) *redis.Server {
		is := &redis.Server{Address: "r", Info: map[string]string{"role": "master"}, Config: map[string]string{"save": "", "appendfsync": "everysec", "min-replicas-to-write": "0"}}
		for n := 0; n < len(pairs); n += 2 {
			is.Info[pairs[n]] = pairs[n+1]
		}
		return is
	}
	online := "ip=10.0.0.2,port=6379,state=online,offset=14,lag="
	for _, row := range []struct{ got, want string }{
		{told(replication(master("slave0", online+"0", "slave1", online+"5"), redis.Standalone)), "ok replication: r: primary, 2 replicas are in step, at most 5s behind\n"},
		{told(replication(master("slave0", online+"6"), redis.Standalone)), "warn replication: r: replica 10.0.0.2:6379 has not answered for 6s\n"},
		{told(replication(master("slave0", "ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0"), redis.Standalone)), "warn replication: r: replica 10.0.0.2:6379 is not in step: wait_bgsave\n"},
		{told(replication(master(), redis.Sentinel)), "warn replication: r: no replica\n"},
		{told([]Finding{persistence(master("aof_enabled", "1", "aof_last_write_status", "err"))}), "fail persistence: r: the append-only file cannot be written\n"},
		{told([]Finding{persistence(master("aof_enabled", "0", "rdb_last_bgsave_status", "err"))}), "warn persistence: r: nothing is saved\n"},
		{told([]Finding{clock(&redis.Server{Address: "r", Ahead: 3 * time.Second, Within: 2 * time.Second})}), "ok clock: r: as on this machine\n"},
		{told([]Finding{clock(&redis.Server{Address: "r", Ahead: -3 * time.Second, Within: time.Second})}), "warn clock: r: 3s behind this machine\n"},
	} {
		if row.got != row.want {
			t.Errorf("%s, want %s", row.got, row.want)
		}
	}
}

func TestClusterReport(t *testing.T) {
	t.Parallel()
	node := func(text string) redis.Server {
		is := redis.Server{Address: "n", Cluster: map[string]string{}}
		for pair := range strings.FieldsSeq(text) {
			name, value, _ := strings.Cut(pair, "=")
			is.Cluster["cluster_"+name] = value
		}
		return is
	}
	for text, want := range map[string]string{
		"state=ok slots_assigned=16384 size=3 known_nodes=6":                                   "ok cluster: 3 primaries among 6 nodes serve all slots\n",
		"state=ok slots_assigned=16384 size=2 known_nodes=4":                                   "warn cluster: 2 primary nodes in the cluster\n",
		"state=fail slots_assigned=16384 size=3 known_nodes=6":                                 "fail cluster: n: cluster_state fail\n",
		"state=ok slots_assigned=16384 slots_pfail=0 slots_fail=5461 size=3 known_nodes=6":     "warn cluster: n: the servers of 5461 slots do not answer\n",
		"state=ok slots_assigned=16000 slots_pfail=0 slots_fail=0 size=3 known_nodes=6":        "fail cluster: n: 384 of 16384 slots belong to no server\n",
		"state=ok slots_assigned=16384 slots_pfail=2730 slots_fail=2731 size=3 known_nodes=62": "warn cluster: n: the servers of 5461 slots do not answer\n",
	} {
		if got := told(cluster([]redis.Server{node(text), {Address: "dead", Err: errors.New("gone")}})); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestSentinelReport(t *testing.T) {
	t.Parallel()
	sees := func(others, port, flags string) redis.SentinelReport {
		return redis.SentinelReport{Address: "s", Primary: map[string]string{"ip": "10.0.0.1", "port": port, "flags": flags, "quorum": "2", "num-other-sentinels": others}}
	}
	lost := sees("2", "1", "master")
	lost.NoQuorum = errors.New("NOQUORUM 1 usable Sentinels")
	for want, list := range map[string][]redis.SentinelReport{
		"": nil,
		"ok sentinels: 3 watch the primary 10.0.0.1:1, quorum 2\n":                              {sees("2", "1", "master"), sees("2", "1", "master")},
		"warn sentinels: 2 sentinels are not enough\n":                                          {sees("1", "1", "master")},
		"fail sentinels: s: NOQUORUM 1 usable Sentinels\n":                                      {lost},
		"fail sentinels: s: the primary is down (s_down,o_down,master)\n":                       {sees("2", "1", "s_down,o_down,master")},
		"fail sentinels: they name different primaries: 10.0.0.1:1, 10.0.0.1:2\n":               {sees("2", "2", "master"), sees("2", "1", "master")},
		"warn sentinels: s does not answer: gone\n":                                             {{Address: "s", Err: errors.New("gone")}},
		"warn sentinels: s does not answer: gone\nwarn sentinels: 2 sentinels are not enough\n": {{Address: "s", Err: errors.New("gone")}, sees("1", "1", "master")},
	} {
		if got := told(sentinels(list)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
