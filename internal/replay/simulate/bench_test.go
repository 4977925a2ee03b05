package simulate_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay/simulate"
)

// benchRules are those of the benchmarks: a rule for some requests, and one
// for all.
const benchRules = `
domain: api
limits:
  - {name: login, match: {method: POST, path: /login}, key: client_ip, rate: 5/minute}
  - {name: all, key: client_ip, rate: 10/second, burst: 50}
`

// combined returns lines of the combined format: 200 a second, from 5,000
// addresses of which some are much more active.
func combined(lines int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	paths := []string{"GET /v1/items/17?x=1", "GET /index.html", "POST /login", "GET /static/app.js"}
	for i := range lines {
		who := int(5000 * rnd.Float64() * rnd.Float64() * rnd.Float64())
		fmt.Fprintf(&out, "198.51.%d.%d - - [%s] \"%s HTTP/1.1\" 200 %d \"https://example.com/start\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\"\n",
			who/250, who%250, at.Add(time.Duration(i)*5*time.Millisecond).Format("02/Jan/2006:15:04:05 -0700"),
			paths[rnd.IntN(len(paths))], rnd.IntN(20000))
	}
	return out.Bytes()
}

// BenchmarkCombined replays a log in the combined format, and in the same run
// counts its lines by wc -l and parses them by a plain regular expression. An
// operation is a line.
func BenchmarkCombined(b *testing.B) {
	const lines = 500_000
	log := combined(lines)
	b.Run("simulate", func(b *testing.B) {
		o := options(b, benchRules, bytesLog("access.log", log))
		began := time.Now()
		rounds := 0
		for b.Loop() {
			r, err := simulate.Run(b.Context(), o)
			if err != nil || r.Requests != lines || r.Skipped != 0 || r.Refused < lines/100 || r.Allowed < lines/2 {
				b.Fatalf("%+v, %v: not what the benchmark is about", r, err)
			}
			rounds++
		}
		b.ReportMetric(float64(rounds*lines)/time.Since(began).Seconds(), "lines/s")
	})
	b.Run("wc", func(b *testing.B) {
		wc, err := exec.LookPath("wc")
		if err != nil {
			b.Skip("there is no wc")
		}
		path := filepath.Join(b.TempDir(), "access.log")
		if err := os.WriteFile(path, log, 0o600); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		rounds := 0
		for b.Loop() {
			out, err := exec.CommandContext(b.Context(), wc, "-l", path).Output()
			if err != nil || !strings.HasPrefix(strings.TrimSpace(string(out)), fmt.Sprint(lines)) {
				b.Fatalf("%s, %v", out, err)
			}
			rounds++
		}
		b.ReportMetric(float64(rounds*lines)/time.Since(began).Seconds(), "lines/s")
	})
	b.Run("regexp", func(b *testing.B) {
		form := regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d+) (\d+|-) "([^"]*)" "([^"]*)"$`)
		began := time.Now()
		rounds := 0
		for b.Loop() {
			n := 0
			for line := range bytes.Lines(log) {
				m := form.FindSubmatch(bytes.TrimRight(line, "\n"))
				if m == nil {
					b.Fatalf("%s", line)
				}
				if _, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(m[2])); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != lines {
				b.Fatal(n)
			}
			rounds++
		}
		b.ReportMetric(float64(rounds*lines)/time.Since(began).Seconds(), "lines/s")
	})
}

func bytesLog(name string, text []byte) simulate.Log {
	return simulate.Log{Name: name, Size: int64(len(text)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}}
}
