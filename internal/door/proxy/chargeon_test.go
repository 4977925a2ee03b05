package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const chargeRules = `
domain: api
limits:
  - {name: status, match: {path: /status}, rate: 1000/day, algorithm: fixed_window, charge_on: {status: [401, 403]}}
  - {name: outage, match: {path: /outage}, rate: 1000/day, algorithm: fixed_window, charge_on: {status: [502, 503, 504]}}
  - {name: cancel, match: {path: /cancel}, rate: 1000/day, algorithm: fixed_window, charge_on: {status: 401, on_abort: cancel}}
  - {name: grpc, match: {path: /grpc}, rate: 1000/day, algorithm: fixed_window, charge_on: {grpc: [UNAUTHENTICATED, UNKNOWN], status: 429}}
  - {name: header, match: {path: /header}, rate: 1000/day, algorithm: fixed_window, charge_on: {headers: {X-Login: failed}}}
  - {name: cost, match: {path: /header}, rate: 1000/day, algorithm: fixed_window, cost: {from_response: X-Cost}}
`

// usedOf returns what the first rule of a path has counted.
func usedOf(t *testing.T, db store.Store, path string) int64 {
	t.Helper()
	rs, _ := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(chargeRules)})
	rule := rs.Rule("api", path[1:])
	d, err := store.Execute(t.Context(), db, store.Op{Scope: rule.Scope, Rule: rule.Limit.Rule(), Cost: 1, At: time.Now().UnixMicro(), Kind: store.KindPeek})
	if err != nil {
		t.Fatal(err)
	}
	return 1000 - d.Remaining
}

// A request counts by its answer; one whose answer nobody has seen counts.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	answers := func(status int, field ...string) upstream {
		return func(r *http.Request) (*http.Response, error) {
			res, err := ok(r)
			res.StatusCode = status
			for i := 0; i+1 < len(field); i += 2 {
				res.Header.Add(field[i], field[i+1])
			}
			return res, err
		}
	}
	ends := func(code string, err error) upstream {
		return func(r *http.Request) (*http.Response, error) {
			res, _ := answers(200, "Content-Type", "application/grpc+proto")(r)
			res.Trailer = http.Header{"Grpc-Status": nil}
			res.Body = &pieces{r.Context(), time.Second, "x", 3, func() error {
				if code != "" {
					res.Trailer.Set("Grpc-Status", code)
				}
				return err
			}}
			return res, nil
		}
	}
	fails := func(err error) upstream { return func(*http.Request) (*http.Response, error) { return nil, err } }
	slowly := func(to upstream) upstream {
		return func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(5 * time.Second):
				return to(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	late := &net.OpError{Op: "dial", Err: timeout{}}
	for _, row := range []struct {
		name   string
		path   string
		to     upstream
		leaves time.Duration // the client, after this time; 0 for never
		counts bool
	}{
		{"right", "/status", answers(200), 0, false},
		{"wrong", "/status", answers(401), 0, true},
		{"forbidden", "/status", answers(403), 0, true},
		{"not found", "/status", answers(404), 0, false},
		{"error", "/status", answers(500), 0, false},
		{"a body that breaks off", "/status", worksUntil(3, "x", io.ErrUnexpectedEOF), 0, false},
		{"upstream down", "/status", fails(dial), 0, false},
		{"upstream full", "/status", fails(proxy.ErrUpstreamFull), 0, false},
		{"upstream with a wrong certificate", "/status", fails(&tls.CertificateVerificationError{Err: errors.New("x")}), 0, false},
		{"upstream down, listed", "/outage", fails(dial), 0, true},
		{"upstream full, listed", "/outage", fails(proxy.ErrUpstreamFull), 0, true},
		{"upstream not reached in time, listed", "/outage", fails(late), 0, true},
		{"upstream not reached in time", "/status", fails(late), 0, false},
		{"an answer that breaks off", "/status", fails(io.ErrUnexpectedEOF), 0, true},
		{"no answer in time", "/status", fails(timeout{}), 0, true},
		{"no answer in time, cancelled", "/cancel", fails(timeout{}), 0, false},
		{"client gone, right", "/status", slowly(answers(200)), time.Second, false},
		{"client gone, wrong", "/status", slowly(answers(401)), time.Second, true},
		{"client gone, no answer", "/status", slowly(slowly(slowly(answers(200)))), time.Second, true},
		{"client gone, no answer, cancelled", "/cancel", slowly(slowly(slowly(answers(200)))), time.Second, false},
		{"gRPC, right", "/grpc", ends("0", io.EOF), 0, false},
		{"gRPC, wrong", "/grpc", ends("16", io.EOF), 0, true},
		{"gRPC, another", "/grpc", ends("7", io.EOF), 0, false},
		{"gRPC, a code that does not exist", "/grpc", ends("99", io.EOF), 0, true},
		{"gRPC, no code", "/grpc", ends("", io.EOF), 0, true},
		{"gRPC, broken off", "/grpc", ends("", io.ErrUnexpectedEOF), 0, true},
		{"gRPC, client gone, right", "/grpc", ends("0", io.EOF), 2 * time.Second, false},
		{"gRPC, client gone, wrong", "/grpc", ends("16", io.EOF), 2 * time.Second, true},
		{"gRPC, only a header", "/grpc", answers(200, "Content-Type", "application/grpc", "Grpc-Status", "16"), 0, true},
		{"gRPC, only a header, right", "/grpc", answers(200, "Content-Type", "application/grpc", "Grpc-Status", "0"), 0, false},
		{"gRPC, no gRPC answer", "/grpc", answers(503, "Content-Type", "text/html"), 0, false},
		{"gRPC, status", "/grpc", answers(429, "Content-Type", "text/html"), 0, true},
		{"header", "/header", answers(200, "X-Login", "failed"), 0, true},
		{"another header", "/header", answers(200, "X-Login", "ok"), 0, false},
		{"no header", "/header", answers(200), 0, false},
		{"one of several headers", "/header", answers(200, "X-Login", "ok", "X-Login", "failed"), 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.WithClock(time.Now))
				p := newProxy(t, chargeRules, store, row.to, func(o *proxy.Options) { o.Abandoned = proxy.Abandoned{Time: 8 * time.Second} })
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if row.leaves > 0 {
					time.AfterFunc(row.leaves, leave)
				}
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(ctx, "GET", row.path))
				want, told := int64(0), "1000"
				if row.counts {
					want, told = 1, "999"
				}
				if got := usedOf(t, store, row.path); got != want {
					t.Errorf("%d counted, want %d", got, want)
				}
				// The header is sent before a code in the trailer.
				if row.leaves == 0 && !strings.HasPrefix(row.name, "gRPC") && row.path != "/header" {
					if got := w.Header().Get("X-RateLimit-Remaining"); got != told && row.path != "/cancel" {
						t.Errorf("the client is told %s remaining, want %s", got, told)
					}
				}
			})
		})
	}
}

// A banned client sees the limits count by the answers that it gets, like any other.
func TestShadowBansCountByTheirAnswer(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: secret, rate: 1/day, algorithm: fixed_window, on_limit: {action: shadow_ban, status: STATUS}}
  - {name: failed, rate: 3/day, algorithm: fixed_window, charge_on: {status: 401}}
`
	for status, want := range map[string]string{"200": "3 3 3 3 3", "401": "3 2 1 0 0"} {
		synctest.Test(t, func(t *testing.T) {
			p := newProxy(t, strings.Replace(text, "STATUS", status, 1), memory.New(memory.WithClock(time.Now)), ok)
			var left []string
			for range 5 {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", "/"))
				left = append(left, w.Header().Get("X-RateLimit-Remaining"))
			}
			if got := strings.Join(left, " "); got != want {
				t.Errorf("%s: %s left, want %s", status, got, want)
			}
		})
	}
}
