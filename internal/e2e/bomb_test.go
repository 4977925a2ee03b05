package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/replay/simulate"
)

// A bomb unpacks to bombSize, and processing it may take up to bombMemory at a time.
// That also covers larger ones: no step depends on the size.
const (
	bombSize   = 256 << 20
	bombMemory = 64 << 20
)

// bomb returns a gzip file that repeats text.
func bomb(t *testing.T, text string) []byte {
	t.Helper()
	const member = 16 << 20
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for range member / len(text) {
		_, _ = io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), bombSize/member)
}

// allocated returns an upper limit for the memory that f uses at a time, in bytes: its
// total allocations, or the growth of the maximum heap size.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return min(int64(after.TotalAlloc-before.TotalAlloc), max(int64(after.HeapSys)-int64(before.HeapSys), 0))
}

// A log that is small on disk and huge when unpacked, in one line or in millions, takes
// simulate no more memory than a small one.
func TestSimulateABomb(t *testing.T) {
	folder := t.TempDir()
	rules := filepath.Join(folder, "rules.yaml")
	writeFile(t, rules, "domain: d\nlimits: [{name: a, key: [client_ip], rate: 1/second}]\n")
	const line = `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"` + "\n"
	long := strings.Repeat("\x00", 1<<20)
	for name, text := range map[string]string{
		"one line": long, "many lines": strings.Repeat(strings.Repeat(".", 127)+"\n", 1<<13), "lines of a megabyte": long[1:] + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(folder, "access.log.gz")
			packed := bomb(t, text)
			var first bytes.Buffer
			w := gzip.NewWriter(&first)
			_, _ = io.WriteString(w, strings.Repeat(line, 10))
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(first.Bytes(), packed...), 0o600); err != nil {
				t.Fatal(err)
			}
			s := offline.Simulation{AccessLogs: offline.AccessLogs{Paths: []string{file}, Format: "combined", Timezone: "UTC"}, Rules: []string{rules}, MaxKeys: 1000, Top: 5}
			var report *simulate.Report
			took := allocated(func() {
				var err error
				if report, err = s.Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if report == nil || report.Requests != 10 {
				t.Errorf("%+v, want a report of 10 requests", report)
			}
			if took > bombMemory {
				t.Errorf("took %d bytes, want at most %d", took, bombMemory)
			}
			t.Logf("%d bytes packed, took %d", len(packed), took)
		})
	}
}

// A request that is small on the wire and huge when unpacked is refused by every door
// that unpacks; the others do not unpack it.
func TestDoorsAreSentABomb(t *testing.T) {
	f := run(t, loginRules, http.NotFoundHandler(), func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	packed := bomb(t, strings.Repeat("\x00", 1<<20))
	message := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(packed)))
	message = append(message, packed...)
	cleartext := new(http.Protocols)
	cleartext.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: cleartext}}
	defer client.CloseIdleConnections()
	for _, row := range []struct {
		name, url, kind string
		body            []byte
		// want is the status over gRPC or HTTP.
		want string
	}{
		{"Envoy", "http://" + f.Addr(doorGRPC) + "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "application/grpc", message, "8 12"},
		{"the API over gRPC", "http://" + f.Addr(doorGRPC) + "/headgate.v1.Limiter/Check", "application/grpc", message, "8 12"},
		{"check", f.apiURL("/v1/check"), "application/json", packed, "400 413 415"},
		{"Envoy over HTTP", f.apiURL("/json"), "application/json", packed, "400 413 415"},
		{"proxy", f.proxyURL("/other"), "application/json", packed, "404"},
	} {
		t.Run(row.name, func(t *testing.T) {
			took := allocated(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, row.url, bytes.NewReader(row.body))
				if err != nil {
					t.Fatal(err)
				}
				over := f.client
				r.Header.Set("Content-Type", row.kind)
				if row.kind == "application/grpc" {
					over = client
					r.Header.Set("Grpc-Encoding", "gzip")
					r.Header.Set("Te", "trailers")
				} else {
					r.Header.Set("Content-Encoding", "gzip")
				}
				res, err := over.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				text := read(t, res)
				got := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status")
				if row.kind != "application/grpc" {
					got = res.Status[:3]
				}
				if got == "" || !strings.Contains(row.want, got) {
					t.Errorf("answers %q %s %s, want %s: %s", got, res.Header.Get("Grpc-Message"), res.Trailer.Get("Grpc-Message"), row.want, text)
				}
				t.Log(got, res.Header.Get("Grpc-Message"), res.Trailer.Get("Grpc-Message"), text)
			})
			if took > bombMemory {
				t.Errorf("took %d bytes", took)
			}
			t.Logf("%d bytes packed, took %d", len(row.body), took)
		})
	}
}
