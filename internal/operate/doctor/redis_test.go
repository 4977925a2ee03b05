package doctor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/operate/doctor"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// inspect returns the findings about a Redis, on a clock that is off by ahead.
func inspect(t *testing.T, store string, ahead time.Duration) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"headgate.yaml": closed + store + "rules: [rules.yaml]\n", "rules.yaml": goodRules} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := doctor.Installation{
		Sources: config.Sources{File: filepath.Join(folder, "headgate.yaml"), Doors: app.Sections(), Environment: func(string) (string, bool) { return "", false }},
		Now:     func() time.Time { return time.Now().Add(-ahead) },
	}
	return lines(i.Examine(t.Context()))
}

func url(scheme string, addresses ...string) string {
	return "store: '" + scheme + "://" + strings.Join(addresses, ",") + "'\n"
}

// expect fails unless all wanted texts are in got, and none that begin with an
// exclamation mark.
func expect(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if text, not := strings.CutPrefix(w, "!"); strings.Contains(got, text) == not {
			t.Errorf("want %s, got\n%s", w, got)
		}
	}
}

// What a restart of Redis forgets.
func TestPersistence(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	is := func(want ...string) {
		t.Helper()
		expect(t, inspect(t, url("redis", server.Addr), 0), want...)
	}
	is("warn persistence: "+server.Addr+": nothing is saved\n", "ok clock: ", "ok permissions: ")
	server.Do("CONFIG", "SET", "save", "3600 1")
	is("warn persistence: " + server.Addr + ": snapshots only (save 3600 1)\n")
	server.Do("CONFIG", "SET", "appendonly", "yes")
	is("ok persistence: " + server.Addr + ": append-only file, appendfsync everysec\n")
	server.Do("CONFIG", "SET", "appendfsync", "no")
	is("warn persistence: " + server.Addr + ": append-only file, appendfsync no\n")
}

// A snapshot that cannot be written stops a Redis.
func TestSnapshotFails(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, "--save", "3600 1")
	if err := os.Mkdir(filepath.Join(server.Dir, "dump.rdb"), 0o700); err != nil {
		t.Fatal(err)
	}
	server.Do("SET", "k", "v")
	if _, err := server.Command("SAVE"); err == nil {
		t.Fatal("a snapshot replaced a folder")
	}
	server.Do("BGSAVE")
	for strings.Contains(server.Do("INFO", "persistence"), "rdb_bgsave_in_progress:1") {
	}
	expect(t, inspect(t, url("redis", server.Addr), 0), "fail persistence: "+server.Addr+": the last snapshot failed\n")
}

// The clock of Redis decides; a difference is measured in both directions.
func TestClock(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	at := "clock: " + server.Addr + ": "
	expect(t, inspect(t, url("redis", server.Addr), 0), "ok "+at+"as on this machine\n")
	expect(t, inspect(t, url("redis", server.Addr), time.Hour), "warn "+at, " ahead of this machine\n")
	expect(t, inspect(t, url("redis", server.Addr), -time.Hour), "warn "+at, " behind this machine\n")
}

// A user without a permission learns which one.
func TestPermissionsOfTheUser(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		server.Do("ACL", "SETUSER", "gate", "on", ">secret", "~hg:*", "+@all", "-config", "-hset", "-pexpireat")
		store := "store: {redis: {url: 'redis://gate:secret@" + server.Addr + "'}}\n"
		expect(t, inspect(t, store, 0),
			"fail permissions: the user may not run PEXPIREAT, HSET on keys with the prefix\n",
			"warn persistence: "+server.Addr+": no append-only file, and whether there are snapshots is unknown\n")
		server.Do("ACL", "SETUSER", "gate", "+hset", "+pexpireat", "resetkeys", "~other:*")
		expect(t, inspect(t, store, 0), "fail permissions: ")
		server.Do("ACL", "SETUSER", "gate", "~hg:*", "-info")
		expect(t, inspect(t, store, 0), "ok permissions: ", "warn store: "+server.Addr+": ", "warn store: cannot check maxmemory-policy")
	})
}

// A replica accepts no writes.
func TestReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Standalone(t)
	replica := redistest.Standalone(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port))
	expect(t, inspect(t, url("redis", primary.Addr), 0), "!replication")
	expect(t, inspect(t, url("redis", replica.Addr), 0), "fail replication: "+replica.Addr+": replica of 127.0.0.1:"+strconv.Itoa(primary.Port)+"\n")
}

// A cluster is sound, and is taken for a single Redis.
func TestCluster(t *testing.T) {
	t.Parallel()
	set := redistest.Cluster(t)
	expect(t, inspect(t, url("redis+cluster", set.Addrs()...), 0), "ok permissions: ", "!fail ", "!replication")
	first := set.Primaries[0].Addr
	expect(t, inspect(t, url("redis", first), 0), "fail store: "+first+" is a node of a cluster\n")
}

// A cluster that is to tell host names, but has none, works for nobody: the permissions
// are not to blame.
func TestClusterWithoutHostNames(t *testing.T) {
	t.Parallel()
	node := redistest.Standalone(t, "--cluster-enabled", "yes", "--cluster-preferred-endpoint-type", "hostname")
	node.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for !strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok") {
		if t.Context().Err() != nil {
			t.Fatal("the cluster does not start")
		}
	}
	cluster := url("redis+cluster", node.Addr)
	expect(t, inspect(t, cluster, 0), "fail store: redis: store unavailable: ", "cluster-announce-hostname", "!permissions")
	node.Do("CONFIG", "SET", "cluster-announce-hostname", "localhost")
	expect(t, inspect(t, cluster, 0), "ok permissions: ", "!cluster-announce-hostname")
}

// Sentinels name the primary; one of them is taken for a Redis.
func TestSentinels(t *testing.T) {
	t.Parallel()
	set := redistest.Sentinel(t)
	store := "store: {redis: {url: 'redis+sentinel://" + strings.Join(set.Addrs(), ",") + "/" + redistest.MasterName + "'}}\n"
	expect(t, inspect(t, store, 0), "ok permissions: ", "!fail ")
	expect(t, inspect(t, url("redis", set.Sentinels[0].Addr), 0), "fail store: ")
}
