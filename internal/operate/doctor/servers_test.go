package doctor

import (
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
		is := &redis.Server{Address: "r", Info: map[string]string{"role": "master"}, Config: map[string]string{"save": "", "appendfsync": "everysec"}}
		for n := 0; n < len(pairs); n += 2 {
			is.Info[pairs[n]] = pairs[n+1]
		}
		return is
	}
	for _, row := range []struct{ got, want string }{
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
