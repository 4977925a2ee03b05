package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for d, want := range map[httplimit.Dialect]string{
		httplimit.AllHeaders: "default", httplimit.IETF: "ietf", httplimit.NoHeaders: "none",
		httplimit.GitHub: "github", httplimit.OpenAI: "openai", httplimit.Draft03: "draft-03", 9: "dialect(9)",
	} {
		if got := d.String(); got != want {
			t.Errorf("String of %d: %s, want %s", d, got, want)
		}
	}
	limiter, _ := frozen()
	h := httplimit.New(limiter, headgate.PerMinute(1), httplimit.NoHeaders)(http.HandlerFunc(ok))
	if rec := ask(h); rec.Header().Get("RateLimit") != "" || rec.Header().Get("X-RateLimit-Limit") != "" {
		t.Errorf("NoHeaders: %v", rec.Header())
	}
	if rec := ask(h); rec.Header().Get("Retry-After") != "60" || rec.Header().Get("RateLimit") != "" {
		t.Errorf("NoHeaders, refused: %v", rec.Header())
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	for d, want := range map[httplimit.Dialect]string{
		httplimit.GitHub: "X-RateLimit-Used", httplimit.OpenAI: "X-RateLimit-Reset-Requests", httplimit.Draft03: "RateLimit-Reset",
	} {
		limiter, c := frozen()
		h := httplimit.New(limiter, headgate.PerMinute(5), d)(http.HandlerFunc(ok))
		header := ask(h).Header()
		if header.Get(want) == "" {
			t.Errorf("%s: no %s in %v", d, want, header)
		}
		if reset := strconv.FormatInt(c.now().Unix()+12, 10); d == httplimit.GitHub && header.Get("X-RateLimit-Reset") != reset {
			t.Errorf("%s: reset at %s, want %s", d, header.Get("X-RateLimit-Reset"), reset)
		}
	}
}
