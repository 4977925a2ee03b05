package httplimit_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// script is a server that gives its answers in order and then repeats the last.
type script struct {
	start   time.Time
	answers []reply
	asked   []time.Duration // when each request arrived
	bodies  []string
	open    int // response bodies not closed
}

type reply struct {
	status int
	fields string // such as "Retry-After: 3", one per line
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.asked = append(s.asked, time.Since(s.start))
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		s.bodies = append(s.bodies, string(b))
	}
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	h := http.Header{}
	for line := range strings.Lines(a.fields) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Add(name, value)
	}
	s.open++
	return &http.Response{StatusCode: a.status, Header: h, Request: r, Body: &closing{strings.NewReader("body"), s}}, nil
}

// closing is a body that records whether it was closed.
type closing struct {
	io.Reader
	s *script
}

func (c *closing) Close() error {
	if c.s != nil {
		c.s.open--
	}
	c.s = nil
	return nil
}

// bubble runs f in a synctest bubble, with a Transport that sends to a script.
func bubble(t *testing.T, answers []reply, f func(*testing.T, *script, *httplimit.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), answers: answers}
		f(t, s, &httplimit.Transport{Base: s})
	})
}

func get(ctx context.Context, t *testing.T, rt http.RoundTripper, url string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_ = res.Body.Close()
	return res.StatusCode, nil
}

// about reports whether got is want or up to a tenth later, the jitter.
func about(got, want time.Duration) bool { return got >= want && got <= want+want/10 }

func TestTransportHints(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		first  reply
		second time.Duration // when the next request is sent
	}{
		{"nothing said", reply{200, ""}, 0},
		{"some left", reply{200, `RateLimit: "a";r=1;t=30`}, 0},
		{"none left", reply{200, `RateLimit: "a";r=0;t=30`}, 30 * time.Second},
		{"none left of one of two", reply{200, `RateLimit: "a";r=5;t=50, "b";r=0;t=30`}, 30 * time.Second},
		{"none left of two", reply{200, `RateLimit: "a";r=0;t=10, "b";r=0;t=30`}, 30 * time.Second},
		{"the longer first", reply{200, `RateLimit: "b";r=0;t=30, "a";r=0;t=10`}, 30 * time.Second},
		{"two lines", reply{200, "RateLimit: \"a\";r=0;t=10\nRateLimit: \"b\";r=0;t=30"}, 30 * time.Second},
		{"a name with separators", reply{200, `RateLimit: "a;r=0;t=9,\"b\";r=0;t=9";r=7;t=1`}, 0},
		{"a name with an escaped quote", reply{200, `RateLimit: "a\";r=0;t=9;";r=7;t=1`}, 0},
		{"no t", reply{200, `RateLimit: "a";r=0`}, 0},
		{"nonsense", reply{200, `RateLimit: ";;,=r=0`}, 0},
		{"draft-07", reply{200, `RateLimit: limit=1, remaining=0, reset=60`}, time.Minute},
		{"draft-07, some left", reply{200, `RateLimit: limit=2, remaining=1, reset=60`}, 0},
		{"draft-07, malformed", reply{200, `RateLimit: limit=1, remaining=0, reset=60,`}, 0},
		{"draft-07, no number", reply{200, `RateLimit: limit=1, remaining=0, reset=?1`}, 0},
		{"a negative zero", reply{200, `RateLimit: "a";r=-0;t=30`}, 30 * time.Second},
		{"the last of equal parameters counts", reply{200, `RateLimit: "a";r=1;t=5;r=0;t=30`}, 30 * time.Second},
		{"other parameters are comments", reply{200, `RateLimit: "a";r=0;t=30;pk=:YQ==:;acme-x="y;r=1";b`}, 30 * time.Second},
		{"legacy", reply{200, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 20"}, 20 * time.Second},
		{"legacy, some left", reply{200, "X-RateLimit-Remaining: 3\nX-RateLimit-Reset: 20"}, 0},
		{"draft-03", reply{200, "RateLimit-Remaining: 0\nRateLimit-Reset: 20"}, 20 * time.Second},
		{"the IETF's field before legacy", reply{200, "RateLimit: \"a\";r=0;t=5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 20"}, 5 * time.Second},
		{"Retry-After of a 200 means nothing", reply{200, "Retry-After: 20"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, []reply{tt.first, {200, ""}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
				for range 2 {
					if status, err := get(t.Context(), t, rt, "http://a/"); status != 200 || err != nil {
						t.Fatal(status, err)
					}
				}
				if !about(s.asked[1], tt.second) {
					t.Errorf("the second request was sent at %v, want %v", s.asked[1], tt.second)
				}
			})
		})
	}
}

// A malformed field is ignored as a whole, even if a part of it says that nothing is left.
// The shapes are those of httpwg/structured-field-tests.
func TestTransportIgnoresMalformedFields(t *testing.T) {
	t.Parallel()
	for _, member := range []string{
		`;r=0;t=12`, `login;r=0;t=12`, `("login");r=0;t=12`, `1;r=0;t=12`, `:YQ==:;r=0;t=12`, `?1;r=0;t=12`, `'login';r=0;t=12`, `"gr\xfcn";r=0;t=12`, // names
		`"b"`, `"b";t=12`, `"b";r;t=12`, `"b";r=-1;t=12`, `"b";r=0.0;t=12`, `"b";r="0";t=12`, `"b";r=1234567890123456`, `"b";r=0;t=1234567890123456`,
		`"b";r=0;t=-1`, `"b";r=0;t=1.5`, `"b";r=0;t`, `"b";r=0;t="12"`, `"b";r=+0;t=12`, `"b";r=0;t=12;`, `"b";R=0;t=12`, `"b";r =0;t=12`, `"b" ;r=0;t=12`,
		`"b`, `b"`, `"b\x"`, "\"b\t\"", `,`, `("b"`, `"b" "c"`, `"b";x=(1)`, `"b";x=:*:`, `"b";x=1.`, `"b";x=?2`, `"b";x=@1.5`, `"b";x=%"%C3"`,
	} {
		for _, field := range []string{member, `"a";r=0;t=30, ` + member, member + `, "a";r=0;t=30`} {
			h := http.Header{"Ratelimit": {field}}
			if d, told := httplimit.Hint(&http.Response{StatusCode: http.StatusOK, Header: h}, time.Unix(0, 0)); told {
				t.Errorf("%q: %v", field, d)
			}
		}
	}
}

func TestTransportRetries(t *testing.T) {
	t.Parallel()
	// A bubble starts at 2000-01-01 00:00:00 UTC.
	tests := []struct {
		name    string
		answers []reply
		status  int
		asked   []time.Duration
	}{
		{"Retry-After in seconds", []reply{{429, "Retry-After: 7"}, {200, ""}}, 200, []time.Duration{0, 7 * time.Second}},
		{"Retry-After as a date", []reply{{503, "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT"}, {200, ""}}, 200, []time.Duration{0, 9 * time.Second}},
		{
			"a date by the server's own clock",
			[]reply{{429, "Date: Sat, 01 Jan 2000 05:00:00 GMT\nRetry-After: Sat, 01 Jan 2000 05:00:04 GMT"}, {200, ""}},
			200,
			[]time.Duration{0, 4 * time.Second},
		},
		{"a date in the past", []reply{{429, "Retry-After: Fri, 31 Dec 1999 00:00:00 GMT"}, {200, ""}}, 200, []time.Duration{0, 0}},
		{"Retry-After before other fields", []reply{{429, "Retry-After: 3\nRateLimit: \"a\";r=0;t=40"}, {200, ""}}, 200, []time.Duration{0, 3 * time.Second}},
		{"RateLimit alone", []reply{{429, `RateLimit: "a";r=0;t=4`}, {200, ""}}, 200, []time.Duration{0, 4 * time.Second}},
		{"trap T33: a date with the wrong zone is no date", []reply{{429, "Retry-After: Sat, 01 Jan 2000 00:00:09 UTC"}, {200, ""}}, 200, []time.Duration{0, time.Second}},
		{"no time said: from one second, doubling", []reply{{503, ""}, {429, ""}, {429, ""}, {200, ""}}, 200, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}},
		{"a time of 0 is believed once", []reply{{429, "Retry-After: 0"}}, 429, []time.Duration{0, 0, time.Second, 3 * time.Second}},
		{"retries used up", []reply{{429, "Retry-After: 1"}}, 429, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}},
		{"too long: the answer as it is", []reply{{429, "Retry-After: 61"}, {200, ""}}, 429, []time.Duration{0}},
		{"for ever", []reply{{429, "Retry-After: 99999999999999999999999"}, {200, ""}}, 429, []time.Duration{0}},
		{"other errors are not ours", []reply{{500, "Retry-After: 1"}, {200, ""}}, 500, []time.Duration{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, tt.answers, func(t *testing.T, s *script, rt *httplimit.Transport) {
				status, err := get(t.Context(), t, rt, "http://a/")
				if status != tt.status || err != nil {
					t.Errorf("%d, %v, want %d", status, err, tt.status)
				}
				if len(s.asked) != len(tt.asked) {
					t.Fatalf("sent at %v, want %v", s.asked, tt.asked)
				}
				for i := range s.asked {
					if !about(s.asked[i], tt.asked[i]) {
						t.Errorf("sent at %v, want %v", s.asked, tt.asked)
					}
				}
				if s.open != 0 {
					t.Errorf("%d bodies left open", s.open)
				}
			})
		})
	}
}

func TestTransportUnixReset(t *testing.T) {
	t.Parallel()
	// A bubble starts in 2000, when Unix times still look like seconds from now.
	const in2001 = 1_000_000_000 - 946_684_800
	for name, reset := range map[string]string{
		"seconds": "1000000035", "milliseconds": "1000000034500", "nanoseconds": "1000000034000000000",
	} {
		bubble(t, []reply{{200, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: " + reset}, {200, ""}},
			func(t *testing.T, s *script, rt *httplimit.Transport) {
				time.Sleep(in2001*time.Second + 5*time.Second)
				s.start = time.Now()
				for range 2 {
					if status, err := get(t.Context(), t, rt, "http://a/"); status != 200 || err != nil {
						t.Fatal(name, status, err)
					}
				}
				if !about(s.asked[1], 30*time.Second) {
					t.Errorf("%s: sent at %v, want 30s", name, s.asked[1])
				}
			})
	}
}

// A host counts as exhausted for at most an hour, or for MaxWait if that is longer.
func TestTransportAsksAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		first   reply
		maxWait time.Duration
		after   time.Duration // when the next request is sent
	}{
		{"Retry-After beyond all", reply{429, "Retry-After: 999999999999"}, 0, time.Hour},
		{"a date far away", reply{429, "Retry-After: Sat, 01 Jan 2033 00:00:09 GMT"}, 0, time.Hour},
		{"a t beyond all", reply{200, `RateLimit: "a";r=0;t=999999999999`}, 0, time.Hour},
		{"a Reset beyond all", reply{200, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 99999999999999999999"}, 0, time.Hour},
		{"as told, below an hour", reply{429, "Retry-After: 3000"}, 0, 50 * time.Minute},
		{"a caller with time", reply{429, "Retry-After: 999999999999"}, 3 * time.Hour, 3 * time.Hour},
	} {
		bubble(t, []reply{tt.first, {200, ""}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
			rt.MaxWait = tt.maxWait
			if status, err := get(t.Context(), t, rt, "http://a/"); status != tt.first.status || err != nil {
				t.Fatal(tt.name, status, err)
			}
			rt.MaxWait = -1 // no request waits any more
			time.Sleep(tt.after - time.Second)
			var limited *headgate.LimitedError
			if _, err := get(t.Context(), t, rt, "http://a/"); !errors.As(err, &limited) || limited.Decision.RetryAfter != time.Second {
				t.Errorf("%s, a second before: %v", tt.name, err)
			}
			time.Sleep(time.Second)
			if status, err := get(t.Context(), t, rt, "http://a/"); status != 200 || err != nil {
				t.Errorf("%s: %d, %v", tt.name, status, err)
			}
		})
	}
}

func TestTransportBodies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		method string
		edit   func(*http.Request)
		status int // of the first answer
		bodies int // how often the body is sent
	}{
		{"a POST refused by a limit", "POST", nil, 429, 2},
		{"a PUT", "PUT", nil, 503, 2},
		{"a POST that may have been done", "POST", nil, 503, 1},
		{"a POST with a key", "POST", with("Idempotency-Key", "1"), 503, 2},
		{"a body that cannot be sent again", "PUT", func(r *http.Request) { r.GetBody = nil }, 429, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, []reply{{tt.status, "Retry-After: 1"}, {200, ""}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
				r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://a/", strings.NewReader("payload"))
				if err != nil {
					t.Fatal(err)
				}
				if tt.edit != nil {
					tt.edit(r)
				}
				body := r.Body
				res, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if len(s.bodies) != tt.bodies || s.open != 0 || r.Body != body {
					t.Errorf("%d bodies sent, want %d; %d open", len(s.bodies), tt.bodies, s.open)
				}
				for _, b := range s.bodies {
					if b != "payload" {
						t.Errorf("sent %q", b)
					}
				}
			})
		})
	}
}

func TestTransportPacesHosts(t *testing.T) {
	t.Parallel()
	bubble(t, []reply{{200, `RateLimit: "a";r=0;t=30`}, {200, ""}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
		for _, url := range []string{"http://a/", "http://b/", "https://a/", "http://a:81/", "http://a/other"} {
			if _, err := get(t.Context(), t, rt, url); err != nil {
				t.Fatal(err)
			}
		}
		if s.asked[3] != 0 {
			t.Errorf("another host was asked at %v", s.asked[3])
		}
		if !about(s.asked[4], 30*time.Second) {
			t.Errorf("the same host was asked at %v, want 30s", s.asked[4])
		}
	})
}

// tripper makes a function an http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Of two concurrent requests, the one answered last reports the shorter wait. The longer
// wait still counts.
func TestTransportKeepsTheLongerWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rt := &httplimit.Transport{Base: tripper(func(r *http.Request) (*http.Response, error) {
			h := http.Header{}
			if state := r.Header.Get("Answer"); state != "" {
				h.Set("RateLimit", state)
			}
			if r.Header.Get("Slow") != "" {
				time.Sleep(time.Second)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}, nil
		})}
		send := func(edits ...func(*http.Request)) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
			for _, edit := range edits {
				edit(r)
			}
			if res, err := rt.RoundTrip(r); err != nil {
				t.Error(err)
			} else {
				_ = res.Body.Close()
			}
		}
		go send(with("Answer", `"a";r=0;t=5`), with("Slow", "yes"))
		synctest.Wait()
		send(with("Answer", `"b";r=0;t=30`))
		time.Sleep(2 * time.Second)
		send()
		if got := time.Since(start); !about(got, 30*time.Second) {
			t.Errorf("the third request was done at %v, want 30s", got)
		}
	})
}

func TestTransportGivesUp(t *testing.T) {
	t.Parallel()
	answers := []reply{{200, `RateLimit: "a";r=0;t=30`}, {200, ""}}
	closed := func(rt *httplimit.Transport, ctx context.Context) (bool, error) {
		body := &closing{strings.NewReader(""), &script{open: 1}}
		s := body.s
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://a/", body)
		res, err := rt.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return s.open == 0, err
	}
	for name, tt := range map[string]struct {
		wait    time.Duration
		context func(context.Context) (context.Context, context.CancelFunc)
	}{
		"MaxWait":        {10 * time.Second, context.WithCancel},
		"no wait at all": {-1, context.WithCancel},
		"context's limit": {0, func(c context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(c, 10*time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers, func(t *testing.T, s *script, rt *httplimit.Transport) {
				rt.MaxWait = tt.wait
				if _, err := get(t.Context(), t, rt, "http://a/"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := tt.context(t.Context())
				defer cancel()
				ok, err := closed(rt, ctx)
				var limited *headgate.LimitedError
				if !errors.As(err, &limited) || limited.Decision.RetryAfter != 30*time.Second || !ok {
					t.Errorf("%v, body closed: %v; want a LimitedError of 30s", err, ok)
				}
				if since := time.Since(s.start); since != 0 {
					t.Errorf("it took %v to say so", since)
				}
			})
		})
	}
	t.Run("cancelled while waiting", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers, func(t *testing.T, s *script, rt *httplimit.Transport) {
			if _, err := get(t.Context(), t, rt, "http://a/"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			ok, err := closed(rt, ctx)
			if !errors.Is(err, context.Canceled) || !ok || time.Since(s.start) != 5*time.Second || len(s.asked) != 1 {
				t.Errorf("%v after %v, body closed: %v", err, time.Since(s.start), ok)
			}
		})
	})
	t.Run("no retries", func(t *testing.T) {
		t.Parallel()
		bubble(t, []reply{{429, "Retry-After: 1"}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
			rt.MaxRetries = -1
			if status, err := get(t.Context(), t, rt, "http://a/"); status != 429 || err != nil || len(s.asked) != 1 {
				t.Errorf("%d, %v after %d requests", status, err, len(s.asked))
			}
		})
	})
}

func TestTransportForgetsHosts(t *testing.T) {
	t.Parallel()
	bubble(t, []reply{{200, `RateLimit: "a";r=0;t=30`}}, func(t *testing.T, s *script, rt *httplimit.Transport) {
		for i := range 5000 {
			u := url.URL{Scheme: "http", Host: strings.Repeat("x", i%100+1) + strings.Repeat("y", i/100), Path: "/"}
			if _, err := get(t.Context(), t, rt, u.String()); err != nil {
				t.Fatal(err)
			}
		}
		if n := rt.Hosts(); n > 4096 {
			t.Errorf("%d hosts are remembered", n)
		}
	})
}

// Transport and middleware keep to a limit over a real connection.
func TestTransportMeetsMiddleware(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New())
	limit := headgate.Per(2, 20*time.Millisecond)
	refused := 0
	h := httplimit.New(limiter, limit)(http.HandlerFunc(ok))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code == http.StatusTooManyRequests {
			refused++
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = rec.Body.WriteTo(w)
	}))
	defer server.Close()
	client := &http.Client{Transport: &httplimit.Transport{}}
	for i := range 3 {
		res, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK || string(body) != "ok" {
			t.Errorf("request %d: %d %s", i, res.StatusCode, body)
		}
	}
	if refused != 0 {
		t.Errorf("%d requests were refused; the client was told when to wait", refused)
	}
}
