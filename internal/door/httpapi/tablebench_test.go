//go:build linux

package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store/memory"
)

// tableRows is the number of rows of the table that BenchmarkCheckTable uses.
const tableRows = 1_000_000

// tableHandler returns an API with one rule, whose rate is as given.
func tableHandler(b *testing.B, rate string) http.Handler {
	b.Helper()
	dir := b.TempDir()
	var csv strings.Builder
	csv.WriteString("key,rate\n")
	for i := range tableRows {
		fmt.Fprintf(&csv, "customer-%027d,%d/minute\n", i, 1_000_000+i%50)
	}
	for name, text := range map[string]string{
		"customers.csv": csv.String(),
		"rules.yaml":    "domain: api\nlimits:\n  - {name: a, key: [user], rate: " + rate + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		b.Fatal(err)
	}
	return httpapi.New(httpapi.Options{
		Asker:  admission.Asker{Engine: engine.New(memory.New(), rs), Clock: func() time.Time { return at }, Logger: slog.New(slog.DiscardHandler), Clients: clients},
		Bodies: membound.New(membound.Options{Most: 1 << 20}),
	})
}

// processorTime returns how long this process has run.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// caller checks one request after another over one connection.
type caller struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func newCaller(b *testing.B, h http.Handler) *caller {
	b.Helper()
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	nc, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = nc.Close() })
	return &caller{Conn: nc, in: bufio.NewReader(nc)}
}

// check returns the limit that the answer names.
func (c *caller) check(b *testing.B, user int) (limit string) {
	b.Helper()
	const body = `{"domain":"api","attributes":{"user":"customer-%027d"}}`
	c.out = fmt.Appendf(c.out[:0], "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"+body, len(body)-len("%027d")+27, user)
	if _, err := c.Write(c.out); err != nil {
		b.Fatal(err)
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.Header.Get("X-Ratelimit-Limit")
}

// BenchmarkCheckTable compares POST /v1/check over a connection under a rule with a table
// of a million rows and under the same rule without one. The two take turns, and the time
// is that of the processor, which includes the client's.
func BenchmarkCheckTable(b *testing.B) {
	callers := [2]*caller{newCaller(b, tableHandler(b, "1000000/minute")), newCaller(b, tableHandler(b, "{table: customers.csv, default: 1/minute}"))}
	for name, keys := range map[string]int{"hot": 100, "uniform": tableRows} {
		b.Run(name, func(b *testing.B) {
			var spent [2]time.Duration
			random := rand.New(rand.NewPCG(1, 2))
			users := make([]int, 1<<10)
			done := 0
			round := func() {
				for i := range users {
					users[i] = random.IntN(keys)
				}
				for k := range callers {
					i := (k + done) % 2
					began := processorTime()
					for _, user := range users {
						callers[i].check(b, user)
					}
					spent[i] += processorTime() - began
				}
				done++
			}
			if got := [2]string{callers[0].check(b, 7), callers[1].check(b, 7)}; got != [2]string{"1000000", "1000007"} {
				b.Fatalf("the premise is wrong: limits of %q", got)
			}
			for b.Loop() {
				round()
			}
			n := float64(done * len(users))
			b.ReportMetric(float64(spent[0])/n, "ns/plain")
			b.ReportMetric(float64(spent[1])/n, "ns/table")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
		})
	}
}
