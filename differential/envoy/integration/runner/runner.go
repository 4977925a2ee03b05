// Package runner takes the place of the package of this name in a copy of envoyproxy/ratelimit,
// so that its integration tests start Headgate (TestIntegration). HEADGATE names the binary,
// PROJECT_DIR the folder with the certificate of the Redis servers.
package runner

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/envoyproxy/ratelimit/src/settings"
)

// Runner is a Headgate with the settings of a test.
type Runner struct {
	server *exec.Cmd
	stats  Stats
}

// NewRunner starts Headgate and waits until it answers.
func NewRunner(s settings.Settings) Runner {
	awaitMinute()
	c := exec.Command(os.Getenv("HEADGATE"), "serve", "--envoy-env") //nolint:noctx,gosec // Stop ends it
	c.Env, c.Stdout, c.Stderr = environment(s), os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		panic(err)
	}
	health := fmt.Sprintf("http://localhost:%d/healthcheck", s.Port)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(health) //nolint:noctx,gosec // ours
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			_ = c.Process.Kill()
			panic("headgate is not ready after 30 s")
		}
	}
	return Runner{server: c, stats: Stats{url: fmt.Sprintf("http://localhost:%d/metrics", s.DebugPort)}}
}

// awaitMinute waits for the next minute if this one is about to end: the tests count within it.
func awaitMinute() {
	now := time.Now()
	if next := now.Truncate(time.Minute).Add(time.Minute); next.Sub(now) < 15*time.Second {
		time.Sleep(next.Sub(now))
	}
}

// environment returns the variables of all settings that differ from the original's defaults.
// It leaves out REDIS_PERSECOND, which Headgate refuses, for one Redis has all counts, and maps
// and lists, which are about statsd and memcached.
func environment(s settings.Settings) []string {
	list := []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1",
		"HEADGATE_COMPAT=envoy", "HEADGATE_LISTEN_RESP=off",
		"HEADGATE_HEADERS=none", // those of the original alone
		"REDIS_TIMEOUT=10s",     // the original's default
		// The original's Makefile adds it to the roots of the system.
		"SSL_CERT_FILE=" + filepath.Join(os.Getenv("PROJECT_DIR"), "cert.pem"),
	}
	for field, value := range reflect.ValueOf(s).Fields() {
		name := field.Tag.Get("envconfig")
		if name == "" || name == "REDIS_PERSECOND" || !value.Comparable() || fmt.Sprint(value) == field.Tag.Get("default") {
			continue
		}
		list = append(list, name+"="+fmt.Sprint(value))
	}
	return list
}

// Run does nothing: NewRunner has started Headgate.
func (r *Runner) Run() {}

// Stop ends Headgate.
func (r *Runner) Stop() {
	_ = r.server.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { _ = r.server.Process.Kill() })
	_ = r.server.Wait()
	late.Stop()
}

// GetStatsStore returns the numbers of Headgate under the original's names.
func (r *Runner) GetStatsStore() Stats { return r.stats }

// Stats reads /metrics each time, as in the table of docs/reference/metrics.md.
type Stats struct{ url string }

// Value is a number that was read.
type Value uint64

// Value returns it.
func (v Value) Value() uint64 { return uint64(v) }

// Flush does nothing: what is read is always new.
func (Stats) Flush() {}

// NewGauge reads a number.
func (s Stats) NewGauge(name string) Value { return s.NewCounter(name) }

// NewCounterWithTags reads a number. Headgate leaves tags to Prometheus.
func (s Stats) NewCounterWithTags(name string, _ map[string]string) Value { return s.NewCounter(name) }

// NewCounter reads a number: the sum of its series.
func (s Stats) NewCounter(name string) (sum Value) {
	r, err := http.Get(s.url) //nolint:noctx // ours
	if err != nil {
		panic(err)
	}
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if belongs(series, name) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				panic(err)
			}
			sum += Value(n)
		}
	}
	return sum
}

// belongs says whether a series counts to the number of the original with this name.
func belongs(series, name string) bool {
	switch name {
	case "ratelimit.service.config_load_success":
		return series == `headgate_reloads_total{result="success"}`
	case "ratelimit.localcache.hitCount":
		return series == "headgate_deny_cache_hits_total"
	case "ratelimit.localcache.missCount":
		return false // Headgate has no such number
	}
	parts := strings.Split(strings.TrimPrefix(name, "ratelimit.service.rate_limit."), ".")
	if len(parts) != 3 {
		panic("no number of Headgate for " + name)
	}
	domain, rule := `{domain="`+parts[0]+`",`, `,rule="`+parts[1]+`"}`
	ofRule := strings.HasPrefix(series, "headgate_decisions_total"+domain) && strings.HasSuffix(series, rule)
	switch parts[2] {
	case "total_hits":
		return ofRule
	case "over_limit":
		return ofRule && strings.Contains(series, `,outcome="refused",`)
	case "over_limit_with_local_cache":
		return series == "headgate_deny_cache_hits_total"
	}
	panic("no number of Headgate for " + name)
}
