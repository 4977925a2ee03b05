package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/benchmarks/process"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// bench measures rows on one Redis.
type bench struct {
	group *process.Group
	redis *process.Server
	admin rueidis.Client
	long  time.Duration
	idle  float64 // the processor time of Redis without requests, in seconds per second
	runs  int     // so that each measurement has keys of its own
}

func newBench(ctx context.Context, long time.Duration) (*bench, error) {
	b := &bench{group: process.NewGroup(ctx), long: long}
	b.redis = b.group.Redis()
	err := b.group.Err
	if err == nil {
		b.admin, err = rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{b.redis.Address()}, ForceSingleClient: true, DisableCache: true,
		})
	}
	if err == nil {
		err = b.measureIdle(ctx)
	}
	if err != nil {
		b.group.Stop()
		return nil, err
	}
	return b, nil
}

func (b *bench) measureIdle(ctx context.Context) error {
	before, err := b.usage(ctx)
	if err != nil {
		return err
	}
	time.Sleep(b.long)
	after, err := b.usage(ctx)
	b.idle = (after.cpu - before.cpu) / b.long.Seconds()
	return err
}

func (b *bench) close() {
	b.admin.Close()
	b.group.Stop()
}

// setup is one store under one row.
type setup struct {
	row    row
	limit  headgate.Limit
	names  []string
	stores []store.Store // of each node
	blocks []*blocks.Store
	wire   *wire
	pings  *pings
}

func (b *bench) setup(ctx context.Context, w row, store string) (s *setup, err error) {
	b.runs++
	s = &setup{row: w, limit: w.limit, names: make([]string, w.keys)}
	for i := range s.names {
		s.names[i] = fmt.Sprintf("user:%d:%08d", b.runs, i)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	switch store {
	case floor:
		s.pings = b.ping(ctx, w.drawsPerSecond())
		fallthrough
	case inMemory:
		s.stores = append(s.stores, memory.New())
		return s, nil
	}
	address := b.redis.Address()
	if w.delay > 0 {
		if s.wire, err = newWire(address, w.delay); err != nil {
			return s, err
		}
		address = s.wire.address()
	}
	if store == inBlocks {
		s.limit = w.inBlocks()
	}
	patience := 5 * time.Second
	if w.stall > 0 {
		patience = 0 // the default, as this row counts what fails
	}
	for range w.nodes {
		shared, err := redis.New(ctx, redis.Options{Addresses: []string{address}, Timeout: patience})
		if err != nil {
			return s, err
		}
		safe := failsafe.New(shared, failsafe.Options{Timeout: patience, DenyCache: failsafe.DenyCache{Entries: 1 << 16}})
		if store == exact {
			s.stores = append(s.stores, safe)
			continue
		}
		node := blocks.New(safe, blocks.Options{})
		s.stores, s.blocks = append(s.stores, node), append(s.blocks, node)
	}
	return s, s.limit.Validate()
}

func (s *setup) close() (err error) {
	for _, store := range s.stores {
		err = errors.Join(err, store.Close())
	}
	if s.wire != nil {
		s.wire.close()
	}
	if s.pings != nil {
		err = errors.Join(err, s.pings.close())
	}
	return err
}

// sample is one measurement.
type sample struct {
	Requests  int64         `json:"requests"`
	PerSecond float64       `json:"per_second"` // decisions
	NsPerOp   float64       `json:"ns_per_op"`  // of one caller after another: wall time per decision
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Passed    float64       `json:"passed_per_second"`
	Share     float64       `json:"allowed_share"`
	Commands  float64       `json:"commands_per_decision"` // Redis scripts, by INFO commandstats
	// ServerCPU is Redis's processor time per million decisions, in seconds, above that
	// without any.
	ServerCPU float64 `json:"server_cpu_seconds_per_million"`
	Allocs    float64 `json:"allocs_per_decision"`
	Degraded  int64   `json:"degraded"` // decisions without an answer of the store
	Keys      int     `json:"distinct_keys"`
	// Expected is how many commands per decision blocks should need, for keys as busy as
	// these were.
	Expected float64 `json:"expected_commands_per_decision"`
	// Excess is how many requests passed above the limit, in all the time since the store
	// was new, and Bound is how many may.
	Excess float64 `json:"excess"`
	Bound  float64 `json:"bound"`
}

// measure measures a store under a row, after it has been busy for a while.
func (b *bench) measure(ctx context.Context, w row, store string) (out sample, err error) {
	s, err := b.setup(ctx, w, store)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	began := time.Now()
	before, err := s.warmUp(ctx, b.long/2)
	if err != nil {
		return out, err
	}
	idle, err := b.usage(ctx)
	if err != nil {
		return out, err
	}
	sum, err := s.load(ctx, b.long, func() error { return b.redis.Stall(ctx, w.stall, b.long/4) })
	if err != nil {
		return out, err
	}
	used, err := b.usage(ctx)
	if err != nil {
		return out, err
	}
	out = s.summary(&sum, used.scripts-idle.scripts, used.cpu-idle.cpu-b.idle*sum.took.Seconds())
	passed := before.passed + sum.passed
	out.Excess = float64(passed) - s.atMost(time.Since(began))
	out.Bound = float64(s.limit.Rule().BlockOver())
	return out, s.check(&out, passed)
}

// warmUp spends the burst of a bucket that will be saturated, and asks for a while, so that
// keys are busy.
func (s *setup) warmUp(ctx context.Context, long time.Duration) (t tally, err error) {
	burst := int64(0)
	if r := s.limit.Rule(); s.row.most < 1 && r.Algorithm == headgate.TokenBucket {
		burst = r.Burst
		if _, err := headgate.New(s.stores[0]).AllowN(ctx, s.names[0], s.limit, burst); err != nil {
			return t, err
		}
	}
	if s.row.total == 0 {
		t, err = s.load(ctx, long, func() error { return nil })
	}
	t.passed += burst
	return t, err
}

// usage is what Redis has done since it started.
type usage struct {
	scripts float64 // calls; what a script calls does not count
	cpu     float64 // seconds
}

var (
	scripts = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|eval|fcall):calls=([0-9]+)`)
	cpu     = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([0-9.]+)`)
)

func (b *bench) usage(ctx context.Context) (u usage, err error) {
	text, err := b.admin.Do(ctx, b.admin.B().Info().Section("commandstats", "cpu").Build()).ToString()
	if err != nil {
		return u, err
	}
	for into, pattern := range map[*float64]*regexp.Regexp{&u.scripts: scripts, &u.cpu: cpu} {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return u, err
			}
			*into += n
		}
	}
	if u.cpu == 0 {
		return u, errors.New("no processor time in Redis's INFO")
	}
	return u, nil
}

// atMost returns how many requests the limit alone lets pass in a time.
func (s *setup) atMost(took time.Duration) float64 {
	r := s.limit.Rule()
	keys := float64(s.row.keys)
	switch r.Algorithm {
	case headgate.TokenBucket:
		return keys * (float64(r.Burst) + took.Seconds()*float64(r.Limit)/(float64(r.Period)/1e6))
	case headgate.FixedWindow:
		return keys * float64(r.Limit)
	default: // one limit in each period that has begun
		periods := 1 + int64(took/(time.Duration(r.Period)*time.Microsecond))
		return keys * float64(r.Limit*periods)
	}
}

// errPremise is returned for a measurement that says nothing. A busy machine can be why.
var errPremise = errors.New("premise not met")

// check returns which premise of the row does not hold.
func (s *setup) check(out *sample, passed int64) error {
	w := s.row
	switch {
	case out.Degraded > 0 && w.stall == 0:
		return fmt.Errorf("%w: %d requests failed", errPremise, out.Degraded)
	case out.Share < w.least || out.Share > w.most:
		return fmt.Errorf("%w: %.4f of the requests passed, want %.4f to %.4f", errPremise, out.Share, w.least, w.most)
	case out.Keys < s.leastKeys(out):
		return fmt.Errorf("%w: %d distinct keys, want %d", errPremise, out.Keys, s.leastKeys(out))
	case w.total > 0 && passed != w.total:
		return fmt.Errorf("%d requests passed, want exactly %d", passed, w.total)
	case out.Excess > out.Bound:
		return fmt.Errorf("%.0f requests passed above the limit, more than the bound of %.0f", out.Excess, out.Bound)
	}
	return nil
}
