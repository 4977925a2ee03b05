package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
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

// subjects starts the servers and returns what is measured.
func subjects(ctx context.Context, g *process.Group) ([]*subject, error) {
	headgate, floor, server := g.Door("resp", rules), g.Floor("resp"), g.Redis()
	if g.Err != nil {
		return nil, g.Err
	}
	c := redis.NewClient(&redis.Options{Addr: server.Address()})
	defer c.Close()
	script, err := c.ScriptLoad(ctx, bucket).Result()
	const key = "key:__rand_int__"
	return []*subject{
		{name: "headgate CL.THROTTLE", server: headgate, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "headgate CL.THROTTLE, refused", server: headgate, args: []string{"CL.THROTTLE", "hot", "0", "1", "86400"}},
		{name: "headgate HG.CHECK", server: headgate, args: []string{"HG.CHECK", "api", "user", key}},
		{name: "redcon, empty answer", server: floor, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "redis INCR", server: server, args: []string{"INCR", key}},
		{name: "redis EVALSHA bucket", server: server, args: []string{"EVALSHA", script, "1", key, "1000000", "1000000", "60"}},
	}, err
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
