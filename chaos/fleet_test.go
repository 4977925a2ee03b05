package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// fleet is some processes that share limits in blocks.
type fleet struct {
	t      *testing.T
	nodes  []*node
	gates  []*sync.RWMutex // callers of a node hold theirs during a call
	stores func() []*redistest.Server
	faults []blockFault
	played int
}

// blockFault breaks something in the middle of a scene.
type blockFault struct {
	name string
	once bool // it cannot be done again
	// old says that processes must have been connected for longer than a block's age and a
	// second. What is given back earlier counts as used, as the store may have lost it.
	old bool
	do  func(s *scene)
}

func (f *fleet) start(bin, store string, env ...string) {
	f.t.Helper()
	f.nodes = append(f.nodes, startNodeWith(f.t, bin, fmt.Sprintf("node-%d", len(f.nodes)), blockRules, store, env...))
	f.gates = append(f.gates, new(sync.RWMutex))
}

// end ends the processes, so that the next fleet has the machine for itself.
func (f *fleet) end() {
	for _, n := range f.nodes {
		n.kill()
	}
}

// refresh restarts the processes, as their bounds are about all keys since their start.
func (f *fleet) refresh() {
	var all sync.WaitGroup
	for _, n := range f.nodes {
		all.Go(func() { n.stop(); n.start() })
	}
	all.Wait()
}

// scene is one fault, and a new key of each limit.
type scene struct {
	*fleet
	name    string
	id      string
	window  tally
	bucket  tally
	stopped chan struct{}
	began   time.Time

	missing  int64 // tokens of the window that processes held when they died
	commands int64 // of servers that died
}

// tally counts what callers know about a key.
type tally struct {
	admitted, unknown atomic.Int64 // tokens
	last              atomic.Int64 // when a request was admitted last, in Unix microseconds

	mu      sync.Mutex
	log     []passed
	refused []passed // only of regions
}

// passed is an admitted request: it was admitted between call and back, in microseconds.
type passed struct{ call, back, cost int64 }

// play runs callers, breaks something when a third of the window is used, and waits until
// nothing of it is left for anybody.
func (f *fleet) play(fault blockFault, w io.Writer) {
	f.t.Helper()
	f.played++
	s := &scene{fleet: f, name: fault.name, id: fmt.Sprintf("id-%d", f.played), stopped: make(chan struct{}), began: time.Now()}
	if fault.once && f.played > 1 {
		return
	}
	f.refresh()
	if fault.old {
		wait(2200 * time.Millisecond)
	}
	before := s.sent()
	var callers sync.WaitGroup
	for i := range f.nodes {
		for _, limit := range []string{"window", "window", "bucket", "bucket"} {
			callers.Go(func() { s.call(i, limit) })
		}
	}
	s.until("a third of the window is used, and of the bucket", func() bool {
		return s.window.admitted.Load() >= windowLimit/3 && s.bucket.admitted.Load() >= bucketSize/3
	})
	fault.do(s)
	healed := time.Now().UnixMicro()
	s.until("nothing is left", func() bool {
		return time.Now().UnixMicro()-max(s.window.last.Load(), healed) > time.Second.Microseconds()
	})
	under := s.sum("headgate_under_admission_bound_tokens", "window") + s.missing
	close(s.stopped)
	callers.Wait()
	s.judge(w, under, s.sent()-before)
}

// judge checks the counts of a scene, and writes its line of the table.
func (s *scene) judge(w io.Writer, under, commands int64) {
	s.t.Helper()
	admitted, unknown := s.window.admitted.Load(), s.window.unknown.Load()
	least, exact := windowLimit-under-unknown, s.most("window")
	if exact != 0 || admitted > windowLimit {
		s.t.Errorf("%s: the window admitted %d of %d, and its bound is %d", s.name, admitted, windowLimit, exact)
	}
	if admitted < least {
		s.t.Errorf("%s: the window admitted %d, want at least %d: %d are kept, and %d requests had no answer", s.name, admitted, least, under, unknown)
	}
	over := s.most("bucket")
	above, lasted := s.bucket.above(bucketSize, bucketRate)
	if over != bucketOver || above > over {
		s.t.Errorf("%s: the bucket admitted %d above its limit, and its bound is %d", s.name, above, over)
	}
	passed, could := s.bucket.admitted.Load(), bucketSize+int64(float64(bucketRate)*lasted.Seconds())
	if passed*4 < could {
		s.t.Errorf("%s: the bucket admitted %d of %d: nothing was tested", s.name, passed, could)
	}
	_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t\n", s.name, admitted, windowLimit, least, passed, could, above, over, commands, commands*1000/max(admitted+passed, 1), lasted.Seconds())
}

// call makes calls of one node until the scene ends.
func (s *scene) call(i int, limit string) {
	d := &respDoor{address: s.nodes[i].resp.Addr}
	defer d.close()
	of := map[string]*tally{"window": &s.window, "bucket": &s.bucket}[limit]
	for {
		select {
		case <-s.stopped:
			return
		default:
		}
		cost := int64(1)
		if limit == "bucket" {
			cost = s.wave()
		}
		s.gates[i].RLock()
		call := time.Now().UnixMicro()
		r, err := d.ask(&question{kind: history.Take, limit: limit, id: s.id, cost: cost})
		back := time.Now().UnixMicro()
		s.gates[i].RUnlock()
		switch {
		case errors.Is(err, errNotSent):
			wait(20 * time.Millisecond)
		case err != nil, r.reason == "fail_closed": // the store may have counted it
			of.unknown.Add(cost)
			wait(20 * time.Millisecond)
		case r.answer != nil && r.answer.Allowed:
			of.add(passed{call, back, cost})
		case r.answer == nil:
			s.t.Errorf("%s: %s: answer %q", s.name, limit, r.reason)
			return
		default:
			wait(time.Millisecond)
		}
	}
}

// wave returns the cost of the next request of the bucket. Callers first ask for little, so
// that processes hold blocks while the bucket is nearly full, and then for all at once.
func (s *scene) wave() int64 {
	if time.Since(s.began)%waves < waves*5/8 {
		wait(10 * time.Millisecond)
		return 1
	}
	return 15
}

const waves = 800 * time.Millisecond

func (a *tally) add(p passed) {
	a.admitted.Add(p.cost)
	a.last.Store(p.back)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, p)
}

func (a *tally) refuse(p passed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = append(a.refused, p)
}

// above returns by how much the bucket was certainly exceeded in the worst interval: of the
// requests whose call and answer are both in it, those that are more than the burst and what
// is refilled. It also returns how long it was used.
func (a *tally) above(size, rate int64) (most int64, lasted time.Duration) {
	if len(a.log) == 0 {
		return 0, 0
	}
	first, last := a.log[0].call, int64(0)
	for _, p := range a.log {
		first, last = min(first, p.call), max(last, p.back)
	}
	const step = 1000 // intervals begin and end with a millisecond
	n := int((last-first)/step) + 2
	ending := make([][]passed, n) // by when they were answered
	for _, p := range a.log {
		ending[(p.back-first)/step+1] = append(ending[(p.back-first)/step+1], p)
	}
	inside := make([]int64, n) // the costs of those answered by now and called from then on
	most = -size
	for end, answered := range ending {
		for _, p := range answered {
			for from := range (p.call-first)/step + 1 {
				inside[from] += p.cost
			}
		}
		for from := range end {
			most = max(most, inside[from]-size-int64(end-from)*rate*step/1_000_000)
		}
	}
	return most, time.Duration(last-first) * time.Microsecond
}

// crash kills a node that holds blocks, and starts it again.
func (s *scene) crash(i int) {
	s.gates[i].Lock() // nothing more is drawn
	s.missing += s.number(s.nodes[i], "headgate_under_admission_bound_tokens", "window")
	held := s.number(s.nodes[i], "headgate_block_held_tokens", "window")
	s.nodes[i].kill()
	s.gates[i].Unlock()
	if held == 0 {
		s.t.Errorf("%s: the process held nothing", s.name)
	}
	s.nodes[i].start()
}

// until waits for something that must happen soon.
func (s *scene) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); wait(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: waiting until %s: window %d, bucket %d", s.name, what, s.window.admitted.Load(), s.bucket.admitted.Load())
		}
	}
}

// number returns a metric of a node, 0 if there is none.
func (f *fleet) number(n *node, metric, rule string) int64 {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/metrics", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if of, value, ok := strings.Cut(lines.Text(), "} "); ok && of == metric+`{domain="chaos",rule="`+rule+`"` {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				f.t.Fatal(err)
			}
			return int64(number)
		}
	}
	return 0
}

func (f *fleet) sum(metric, rule string) (sum int64) {
	for _, n := range f.nodes {
		sum += f.number(n, metric, rule)
	}
	return sum
}

// most returns what the nodes export as the bound of a limit.
func (f *fleet) most(rule string) (most int64) {
	for _, n := range f.nodes {
		most = max(most, f.number(n, "headgate_over_admission_bound_tokens", rule))
	}
	return most
}

// forgets counts what a server was sent, before it dies.
func (s *scene) forgets(server *redistest.Server) { s.commands += commandsOf(server) }

// sent returns how many scripts the stores have executed.
func (s *scene) sent() int64 {
	sum := s.commands
	for _, server := range s.stores() {
		sum += commandsOf(server)
	}
	return sum
}

var scriptCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval|fcall)(?:_ro)?:calls=([0-9]+)`)

func commandsOf(server *redistest.Server) (sum int64) {
	reply, err := server.Command("INFO", "commandstats")
	text, _ := reply.(string)
	if err != nil {
		return 0 // it has died
	}
	for _, found := range scriptCalls.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseInt(found[1], 10, 64)
		sum += n
	}
	return sum
}

// keysOn returns the keys of the scene on a server.
func (s *scene) keysOn(server *redistest.Server) (keys []string) {
	list, _ := server.Command("KEYS", "*"+s.id+"*")
	all, _ := list.([]any)
	for _, key := range all {
		if name, ok := key.(string); ok {
			keys = append(keys, name)
		}
	}
	return keys
}
