package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/benchmarks/process"
)

// bucket is a token bucket in Lua, as applications write it.
const bucket = `
local burst, count, period = tonumber(ARGV[1]) + 1, tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval = period * 1000000 / count
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new = tat + interval
if new - burst * interval > now then
  return {1, burst, math.floor((burst * interval - (tat - now)) / interval), math.ceil((new - burst * interval - now) / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000) + 1)
return {0, burst, math.floor((burst * interval - (new - now)) / interval), -1, math.ceil((new - now) / 1000000)}
`

const rules = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 1000000/minute}\n"

// servers are all of them.
type servers struct {
	headgate, redis, floor *process.Server
	script                 string // the hash of bucket
	folder                 string
}

func startAll(ctx context.Context) (s servers, err error) {
	if s.folder, err = os.MkdirTemp("", "headgate-resp"); err != nil {
		return s, err
	}
	binary := filepath.Join(s.folder, "headgate")
	if err := process.Headgate(ctx, binary); err != nil {
		return s, err
	}
	ruleFile := filepath.Join(s.folder, "rules.yaml")
	if err := os.WriteFile(ruleFile, []byte(rules), 0o600); err != nil {
		return s, err
	}
	if s.headgate, err = process.Start(ctx, func(port string) []string {
		return []string{
			binary, "serve", "--rules", ruleFile, "--listen-api", "off", "--listen-grpc", "off", "--listen-admin", "off",
			"--listen-resp", "127.0.0.1:" + port, "--log-level", "error",
		}
	}); err != nil {
		return s, err
	}
	if s.redis, err = process.Redis(ctx); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	if s.floor, err = process.Start(ctx, func(port string) []string { return []string{self, "floor", "127.0.0.1:" + port} }); err != nil {
		return s, err
	}
	c := redis.NewClient(&redis.Options{Addr: s.redis.Address()})
	defer c.Close()
	s.script, err = c.ScriptLoad(ctx, bucket).Result()
	return s, err
}

func (s *servers) stop() {
	for _, one := range []*process.Server{s.headgate, s.redis, s.floor} {
		one.Stop()
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}

// load is what redis-benchmark is to do.
type load struct {
	requests, pipeline, connections int
	args                            []string
}

// put puts a load on s.
func put(ctx context.Context, s *process.Server, l load) (sample, error) {
	args := append([]string{
		"-p", strconv.Itoa(s.Port), "-c", strconv.Itoa(l.connections), "-P", strconv.Itoa(l.pipeline),
		"-n", strconv.Itoa(l.requests), "-r", "100000", "-e", "--csv",
	}, l.args...)
	before, err := s.CPU()
	if err != nil {
		return sample{}, err
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return sample{}, fmt.Errorf("redis-benchmark: %w\n%s", err, errs.Bytes())
	}
	after, err := s.CPU()
	if err != nil {
		return sample{}, err
	}
	// The premise: no answer was an error.
	if strings.Contains(errs.String(), "Error from server") || strings.Contains(string(out), "Error from server") {
		return sample{}, fmt.Errorf("answers were errors: %s%s", errs.Bytes(), out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		return sample{}, fmt.Errorf("redis-benchmark says %q", out)
	}
	perSecond, err := strconv.ParseFloat(fields[1], 64)
	return sample{perSecond: perSecond, cpu: (after - before) / float64(l.requests) * 1e6}, err
}
