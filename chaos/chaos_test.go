package chaos

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
)

// settings are the flags.
var settings struct { //nolint:gochecknoglobals // flags
	lasting time.Duration
	seed    uint64
	blocks  int
	regions string
	keep    string
	sites   string
}

func TestMain(m *testing.M) {
	flag.DurationVar(&settings.lasting, "chaos.for", 0, "for how long to break things; 0 leaves it out")
	flag.Uint64Var(&settings.seed, "chaos.seed", 0, "what callers and faults are drawn from; 0 draws one")
	flag.IntVar(&settings.blocks, "chaos.blocks", 0, "how often to break everything that TestBlocksUnderFaults breaks; 0 leaves it out")
	flag.StringVar(&settings.regions, "chaos.regions", "", "what TestRegionsUnderFaults breaks: short (what CI does) or all; empty leaves it out")
	flag.StringVar(&settings.keep, "chaos.keep", "", "folder for histories that fail (default a new one)")
	flag.StringVar(&settings.sites, "chaos.sites", "", "only the sites whose names have this in them")
	flag.Parse()
	os.Exit(m.Run())
}

// TestChaos breaks each site for chaos.for, in rounds with separate keys, and checks the
// history of each.
func TestChaos(t *testing.T) {
	if settings.lasting == 0 {
		t.Skip("make chaos-short, or make chaos")
	}
	seed := settings.seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again with -chaos.seed %d", seed)
	dir := t.TempDir()
	headgate := build(t, dir, "..", "./cmd/headgate")
	stepped := build(t, dir, ".", "./steppednode")
	for i, open := range sites(headgate, stepped) {
		s := &site{name: open.name, seed: seed, rand: rand.New(rand.NewPCG(seed, uint64(i)<<32))}
		t.Run(open.name, func(t *testing.T) {
			if !strings.Contains(open.name, settings.sites) {
				t.Skip()
			}
			s.t, s.counts.reasons = t, make(map[string]int)
			open.start(t, s)
			if open.parallel {
				t.Parallel()
			}
			s.run()
		})
	}
}

// run plays round after round.
func (s *site) run() {
	s.began = time.Now()
	s.aligned = s.began.UnixMicro()
	for time.Since(s.began) < settings.lasting && !s.t.Failed() {
		s.round++
		s.play()
		s.check(s.ended())
	}
	c := &s.counts
	s.t.Logf("%d rounds, %d faults, %d ops on %d keys; %d without an answer of the store %v; %d keys undecided",
		s.round, c.made, c.ops, c.keys, c.unknown, c.reasons, c.undecided)
	if c.ops == 0 || c.unknown*5 > c.ops*4 {
		s.t.Errorf("most ops had no answer: nothing was checked")
	}
}

// play is a round: callers make calls, and things break.
func (s *site) play() {
	done, began := make(chan struct{}), s.now()
	var all sync.WaitGroup
	for i := range callers {
		c := &caller{site: s, id: i, rand: rand.New(rand.NewPCG(s.seed, uint64(s.round)<<16|uint64(i))), doors: make(map[string]door)}
		all.Go(func() {
			c.run(done)
			for _, d := range c.doors {
				d.close()
			}
		})
	}
	until := time.Now().Add(round)
	for {
		wait(time.Duration(s.rand.Int64N(int64(time.Second))))
		if !time.Now().Before(until) {
			break
		}
		f := &s.faults[s.rand.IntN(len(s.faults))]
		s.counts.made++
		s.mark(f.name)
		f.do()
	}
	close(done)
	all.Wait()
	if s.unasked != nil && s.unasked() {
		s.t.Logf("round %d: the store was replaced, and nobody asked for it", s.round)
		s.forgot(history.Lost, began, began-lag)
	}
}

// check checks the history of a round against the model.
func (s *site) check(h *history.History) {
	folder := settings.keep
	if folder == "" {
		folder = filepath.Join(os.TempDir(), fmt.Sprintf("headgate-chaos-%d", s.seed))
	}
	h.Slack, h.Reach = max(2000, s.slack), s.reach
	if s.vague {
		h.Memory = 300_000 // 250 ms, and late
	}
	report, err := history.Check(h, history.Options{Patience: 10 * time.Second, Pictures: filepath.Join(folder, s.name)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.counts.keys += report.Keys
	s.counts.undecided += len(report.Undecided)
	if len(report.Faults) == 0 {
		return
	}
	file := filepath.Join(folder, fmt.Sprintf("%s-%d.jsonl", s.name, s.round))
	if err := os.MkdirAll(folder, 0o750); err == nil {
		err = h.Save(file)
		s.t.Logf("history saved: %s (%v)", file, err)
	}
	for _, f := range report.Faults {
		s.t.Errorf("round %d: %s: %s", s.round, f.Key, f.What)
	}
}

// names returns the names of the faults, for the log.
func (s *site) names() []string {
	names := make(map[string]bool)
	for i := range s.faults {
		names[s.faults[i].name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// TestSavedHistory checks a saved history again: -chaos.keep names the file.
func TestSavedHistory(t *testing.T) {
	if !strings.HasSuffix(settings.keep, ".jsonl") {
		t.Skip("-chaos.keep history.jsonl")
	}
	h, err := history.Load(settings.keep)
	if err != nil {
		t.Fatal(err)
	}
	report, err := history.Check(h, history.Options{Patience: time.Minute, Pictures: filepath.Dir(settings.keep)})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Faults {
		t.Errorf("%s: %s", f.Key, f.What)
	}
}
