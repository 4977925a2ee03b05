// Package adaptertest compares a framework's middleware with httplimit: both must give
// the same answers. Only tests use it.
package adaptertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
)

// Status is the prefix of paths that are answered with the status they name, such as
// /status/404, and no body.
const Status = "/status/"

// Server is a framework with the middleware under test. It answers one request; paths
// below [Status] get the status they name, and [Marks].
type Server func(*http.Request) (*http.Response, error)

// Build returns a server with a limit.
type Build func(*headgate.Limiter, headgate.Limit, ...httplimit.Option) Server

// Differences sends the same requests to the server of build and to a net/http one, and
// returns the answers that differ. newLimiter returns a separate limiter for each,
// which uses the given clock.
func Differences(build Build, newLimiter func(clock func() time.Time) *headgate.Limiter) []string {
	var found []string
	for _, c := range cases() {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := func() time.Time { return now }
		got, want := build(newLimiter(clock), c.limit, c.options...), reference(newLimiter(clock), c.limit, c.options...)
		for i, send := range c.requests {
			now = now.Add(time.Second)
			if difference := compare(send, got, want); difference != "" {
				found = append(found, fmt.Sprintf("%s, request %d: %s", c.name, i, difference))
			}
		}
	}
	return found
}

// request makes a request: each server gets a new one.
type request func() *http.Request

type scenario struct {
	name     string
	limit    headgate.Limit
	options  []httplimit.Option
	requests []request
}

func get(target string, header ...string) request { return send(http.MethodGet, target, header...) }

// send returns a request with header fields, given as alternating names and values.
func send(method, target string, header ...string) request {
	return func() *http.Request {
		r := httptest.NewRequest(method, target, http.NoBody)
		r.RemoteAddr = "0.0.0.0:0" // as in fiber's own test connection
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		return r
	}
}

// cases are the scenarios. Except for RefundIf, each has allowed requests and a
// refused one.
func cases() []scenario {
	ok := Status + "200"
	two := headgate.PerMinute(2).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)
	list := []scenario{
		{"default", two, nil, []request{get(ok), get(ok), get(ok), send(http.MethodHead, ok), send(http.MethodPost, ok)}},
		{"nothing ever passes", headgate.PerMinute(0), nil, []request{get(ok)}},
		{"limits of plans", two, []httplimit.Option{httplimit.LimitBy(planned), httplimit.Name("plan")}, []request{
			get(ok), get(ok, "X-Plan", "five"), get(ok, "X-Plan", "none"), get(ok, "X-Plan", "invalid"), get(ok), get(ok),
		}},
		{"header", two, []httplimit.Option{httplimit.ByHeader("X-Api-Key"), httplimit.Name("per-key")}, []request{
			get(ok, "x-api-key", "a"), get(ok, "X-Api-Key", "b"), get(ok, "X-API-KEY", "a", "X-Api-Key", "b"), get(ok, "X-Api-Key", "a"), get(ok), get(ok), get(ok),
		}},
		{"host", two, []httplimit.Option{httplimit.ByHeader("Host")}, []request{
			get("http://a.example" + ok), get("http://b.example" + ok), get("http://a.example" + ok), get("http://a.example" + ok),
		}},
		{"query", two, []httplimit.Option{httplimit.ByQuery("key")}, []request{
			get(ok + "?key=a%20b"), get(ok + "?key=a+b"), get(ok + "?x&key=a+b&key=c"), get(ok + "?key="), get(ok),
		}},
		{"cookie", two, []httplimit.Option{httplimit.ByCookie("session")}, []request{
			get(ok, "Cookie", "a=1; session=s"), get(ok, "Cookie", "session=s"), get(ok, "Cookie", "session=s; a=2"), get(ok, "Cookie", "session=t"),
		}},
		{"trusted proxies", two, []httplimit.Option{httplimit.ByIP(netip.MustParsePrefix("0.0.0.0/32"))}, []request{
			get(ok, "X-Forwarded-For", "198.51.100.1"), get(ok, "X-Forwarded-For", "203.0.113.9, 198.51.100.1"), get(ok, "X-Forwarded-For", "198.51.100.1"),
			get(ok, "X-Forwarded-For", "198.51.100.2"), get(ok, "X-Forwarded-For", "2001:db8::1"), get(ok, "X-Forwarded-For", "2001:db8::2"), get(ok, "X-Forwarded-For", "2001:db8::3"),
		}},
		{"method, path and cost", headgate.PerMinute(10), []httplimit.Option{
			httplimit.Cost(func(r *http.Request) int64 { return int64(len(r.Method)) }),
			httplimit.By(func(r *http.Request) (string, bool) { return r.URL.Path + r.URL.RawQuery + r.RequestURI, true }),
		}, []request{get(ok), get(ok), get(ok + "?x=1"), send(http.MethodOptions, ok), get(ok), get(Status + "200%20x")}},
		{
			"two limits", two,
			[]httplimit.Option{httplimit.Also(headgate.PerDay(3), httplimit.Name("day")), httplimit.Name("minute")},
			[]request{get(ok), get(ok), get(ok), get(ok)},
		},
		{"soft limits", two, []httplimit.Option{httplimit.SoftAt(0.4), httplimit.Also(headgate.PerDay(0), httplimit.Name("day"), httplimit.OnlyMark())}, []request{
			get(ok), get(ok), get(ok),
		}},
		{"refund", two, []httplimit.Option{httplimit.RefundIf(http.StatusOK, http.StatusTeapot, http.StatusInternalServerError)}, []request{
			get(ok), get(Status + "418"), get(ok), get(Status + "404"), get(Status + "500"), get(Status + "401"), get(ok),
		}},
		{"charge on", two, []httplimit.Option{httplimit.ChargeOn(func(status int, h http.Header) bool {
			return status/100 == 4 || h.Get("X-Ratelimit-Limit") == ""
		})}, []request{
			get(ok), get(Status + "418"), get(ok), get(Status + "500"), get(Status + "404"), get(ok),
		}},
	}
	for _, d := range []httplimit.Dialect{httplimit.AllHeaders, httplimit.IETF, httplimit.NoHeaders, httplimit.GitHub, httplimit.OpenAI, httplimit.Draft03} {
		list = append(list, scenario{"dialect " + d.String(), two, []httplimit.Option{d}, []request{get(ok), get(ok), get(ok)}})
	}
	onLimit := httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := httplimit.Refused(r.Context())
		w.Header().Add("X-Own", "1")
		w.Header().Add("X-Own", "2")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "known: "+strconv.FormatBool(ok)+" "+d.RetryAfter.String())
	}))
	return append(list, scenario{"answer of one's own", two, []httplimit.Option{onLimit}, []request{get(ok), get(ok), get(ok)}})
}

// planned is an httplimit.LimitBy that reads a header field.
func planned(r *http.Request) (headgate.Limit, bool) {
	switch r.Header.Get("X-Plan") {
	case "five":
		return headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest), true
	case "none":
		return headgate.PerMinute(0), true
	case "invalid":
		return headgate.Limit{}, true
	}
	return headgate.Limit{}, false
}

// Mistakes returns the invalid arguments, by httplimit.Validate, that the middleware of
// build accepts or reports differently.
func Mistakes(build Build) []string {
	var found []string
	for _, c := range []struct {
		name    string
		limiter *headgate.Limiter
		limit   headgate.Limit
		option  httplimit.Option
	}{
		{"no limiter", nil, headgate.PerMinute(1), httplimit.IETF},
		{"no store", headgate.New(nil), headgate.PerMinute(1), httplimit.IETF},
		{"an unset limit", headgate.New(nowhere{}), headgate.Limit{}, httplimit.IETF},
		{"a window with a burst", headgate.New(nowhere{}), headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithBurst(3), httplimit.IETF},
		{"an invalid limit of Also", headgate.New(nowhere{}), headgate.PerMinute(1), httplimit.Also(headgate.PerMinute(-1))},
		{"a nil By", headgate.New(nowhere{}), headgate.PerMinute(1), httplimit.By(nil)},
	} {
		want := httplimit.Validate(c.limiter, c.limit, c.option)
		if got := mistake(func() { build(c.limiter, c.limit, c.option) }); want == nil || got != want.Error() {
			found = append(found, fmt.Sprintf("%s: panics with %q, want %q", c.name, got, want))
		}
	}
	return found
}

// Nils are the results of an adapter's options for nil functions.
type Nils struct {
	By                               httplimit.By
	Cost, LimitBy, Headroom, OnLimit httplimit.Option
}

// NilFunctions returns which of nils differ from what httplimit makes of nil: an error
// when the middleware is built, or no option. No request panics because of them.
func NilFunctions(build Build, newLimiter func(clock func() time.Time) *headgate.Limiter, nils Nils) []string {
	limit := headgate.PerMinute(0)
	var found []string
	for _, c := range []struct {
		name      string
		got, want httplimit.Option
	}{
		{"By", nils.By, httplimit.By(nil)},
		{"By in Join", httplimit.Join(nils.By), httplimit.By(nil)},
		{"Cost", nils.Cost, httplimit.Cost(nil)},
		{"LimitBy", nils.LimitBy, httplimit.LimitBy(nil)},
		{"Headroom", nils.Headroom, httplimit.Headroom(nil)},
		{"OnLimit", nils.OnLimit, httplimit.OnLimit(nil)},
	} {
		limiter := newLimiter(func() time.Time { return time.Unix(1_700_000_000, 0) })
		got, want := httplimit.Validate(limiter, limit, c.got), httplimit.Validate(limiter, limit, c.want)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			found = append(found, fmt.Sprintf("%s of nil: %v, want %v", c.name, got, want))
			continue
		}
		if got != nil {
			continue
		}
		res, err := build(limiter, limit, c.got)(get(Status + "200")())
		if err != nil || res.StatusCode != http.StatusTooManyRequests {
			found = append(found, fmt.Sprintf("%s of nil: a request is answered %v, %v", c.name, res, err))
			continue
		}
		_ = res.Body.Close()
	}
	return found
}

// Misread returns the requests with repeated values for which a framework's handler
// reads another value than httplimit counts by. The server answers with the header
// field X-Api-Key, the parameter key and the cookie session, separated by |.
func Misread(server Server) []string {
	var found []string
	for _, make := range []request{
		get("/?key=a&key=b", "X-Api-Key", "a", "X-Api-Key", "b", "Cookie", "session=a; session=b"),
		get("/?KEY=x&key[]=y&key=a&key=b", "X_Api_Key", "x", "X-Api-Key", "a", "Cookie", "SESSION=x; session=a; session=b"),
		get("/?key=&key=b", "X-Api-Key", "", "X-Api-Key", "b", "Cookie", "session=; session=b"),
	} {
		r := make()
		header, _ := httplimit.ByHeader("X-Api-Key")(r)
		query, _ := httplimit.ByQuery("key")(r)
		cookie, _ := httplimit.ByCookie("session")(r)
		want := header + "|" + query + "|" + cookie
		res, err := server(r)
		if err != nil {
			return append(found, err.Error())
		}
		got, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil || string(got) != want {
			found = append(found, fmt.Sprintf("%s: the handler reads %q, counted by %q (%v)", r.URL, got, want, err))
		}
	}
	return found
}

// nowhere is a store that is asked only whether it works.
type nowhere struct{ store.Store }

// Do implements [store.Store].
func (nowhere) Do(context.Context, *store.Batch) {}

// mistake returns the error that f panics with, or "".
func mistake(f func()) (text string) {
	defer func() {
		if err, ok := recover().(error); ok {
			text = err.Error()
		}
	}()
	f()
	return ""
}

// reference returns the server to compare with.
func reference(limiter *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) Server {
	h := httplimit.New(limiter, limit, options...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(Marks, MarksOf(r.Context()))
		w.WriteHeader(StatusOf(r.URL.Path))
	}))
	return Serve(h)
}

// Marks is the header field in which servers say what marks the request, as MarksOf does.
const Marks = "X-Marks"

// MarksOf returns the names of the limits that mark the request of ctx.
func MarksOf(ctx context.Context) string { return strings.Join(httplimit.Soft(ctx), ",") }

// Serve returns h as a Server.
func Serve(h http.Handler) Server {
	return func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Result(), nil
	}
}

// StatusOf returns the status that path names, or 404 if it names none.
func StatusOf(path string) int {
	var status int
	if _, err := fmt.Sscanf(strings.TrimPrefix(path, Status), "%d", &status); err != nil {
		return http.StatusNotFound
	}
	return status
}

// compare returns how the answers to a request differ, or "".
func compare(make request, got, want Server) string {
	g, err := read(got, make())
	if err != nil {
		return err.Error()
	}
	w, err := read(want, make())
	if err != nil {
		return err.Error()
	}
	if g != w {
		return fmt.Sprintf("answered\n%s\nhttplimit answers\n%s", g, w)
	}
	return ""
}

// read returns the answer to r as text: the parts that limits affect, without those of
// a framework or its test connection, such as Date.
func read(server Server, r *http.Request) (string, error) {
	res, err := server(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	lines := []string{res.Status[:3]}
	for name, values := range res.Header {
		switch name {
		case "Date", "Server", "Content-Length", "Connection":
			continue
		case "Content-Type":
			if len(body) == 0 && res.StatusCode < http.StatusBadRequest {
				continue // a framework's default
			}
		}
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(append(lines, "", string(body)), "\n"), res.Body.Close()
}
