package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Invalid arguments are found when the interceptor is built, not by each call.
func TestTwoInterceptorsDoNotShareACountByAccident(t *testing.T) {
	t.Parallel()
	limiter, limit := headgate.New(memory.New()), headgate.PerMinute(4)
	grpclimit.UnaryServer(limiter, limit)
	grpclimit.StreamServer(limiter, limit) // of the same server
	grpclimit.UnaryServer(limiter, limit, grpclimit.Name("login"))
	if err := grpclimit.Validate(limiter, limit); err != nil {
		t.Errorf("before an interceptor of another kind: %v", err)
	}
	if err := httplimit.Validate(limiter, limit); err == nil || !strings.Contains(err.Error(), "another middleware of this Limiter counts 4/minute") {
		t.Errorf("of HTTP: %v", err)
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `grpclimit: the limit "default": another middleware of this Limiter counts 4/minute`) {
			t.Errorf("a second UnaryServer: %v", err)
		}
	}()
	grpclimit.UnaryServer(limiter, limit, grpclimit.ByMethod())
}

func TestMistakesShowWhenBuilt(t *testing.T) {
	limiter, _ := newLimiter()
	fine, wrong := headgate.PerMinute(5), headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithBurst(3)
	for _, row := range []struct {
		limiter *headgate.Limiter
		limit   headgate.Limit
		options []grpclimit.Option
		want    string // start of the error; empty for none
	}{
		{limiter, fine, []grpclimit.Option{grpclimit.LimitBy(nil), grpclimit.Also(fine)}, ""},
		{nil, fine, nil, "grpclimit: no limiter: "},
		{headgate.New(nil), fine, nil, "grpclimit: no limiter: "},
		{limiter, headgate.Limit{}, nil, `grpclimit: the limit "default": invalid limit: unset`},
		{limiter, wrong, nil, `grpclimit: the limit "default": invalid limit: only token_bucket and leaky_bucket have a burst`},
		{limiter, fine, []grpclimit.Option{grpclimit.Also(wrong)}, `grpclimit: the limit "default-2": invalid limit`},
		{limiter, fine.WithName("api"), []grpclimit.Option{grpclimit.Also(headgate.PerDay(9), grpclimit.Name("api"))}, `grpclimit: the limit "api": two limits of this middleware are named "api"`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/pkg.Svc/Login", "/Svc/Log_out2"), grpclimit.Methods("/Svc/Three")}, ""},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/pkg.Svc/Login", "pkg.Svc/Login")}, `grpclimit: Methods of the limit "default": "pkg.Svc/Login" is not a full method name such as /package.Service/Method: it must start with a slash`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("Login")}, `grpclimit: Methods of the limit "default": "Login" is no`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("")}, `grpclimit: Methods of the limit "default": "" is no`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/Login")}, `grpclimit: Methods of the limit "default": "/Login" is not a full method name such as /package.Service/Method: it needs a service and a method`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/pkg.Svc/")}, `grpclimit: Methods of the limit "default": "/pkg.Svc/" is no`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("//Login")}, `grpclimit: Methods of the limit "default": "//Login" is no`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/pkg.Svc/*")}, `grpclimit: Methods of the limit "default": "/pkg.Svc/*" is not a full method name such as /package.Service/Method: patterns`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods("/pkg.Svc/Login, /pkg.Svc/Register")}, `grpclimit: Methods of the limit "default": `},
		{limiter, fine, []grpclimit.Option{grpclimit.Also(fine, grpclimit.Methods("/pkg.Svc/Login"))}, `grpclimit: Methods inside Also has no effect`},
		{limiter, fine, []grpclimit.Option{grpclimit.Also(fine, grpclimit.Wait(1))}, `grpclimit: Wait inside Also has no effect`},
		{limiter, fine, []grpclimit.Option{grpclimit.Also(fine, grpclimit.OnError(func(context.Context, error) {}))}, `grpclimit: OnError inside Also has no effect`},
		{limiter, fine, []grpclimit.Option{grpclimit.Wait(-1)}, `grpclimit: Wait of the limit "default" is negative`},
		{limiter, fine, []grpclimit.Option{nil}, `grpclimit: option 1 of the limit "default" is nil`},
		{limiter, fine, []grpclimit.Option{grpclimit.By(nil)}, `grpclimit: By of the limit "default" is nil`},
		{limiter, fine, []grpclimit.Option{grpclimit.ByMetadata("X-Api-Key"), grpclimit.Also(fine, grpclimit.ByMetadata(":authority"))}, ""},
		{limiter, fine, []grpclimit.Option{grpclimit.ByMetadata("")}, `grpclimit: By of the limit "default" is nil, or made from an invalid metadata key`},
		{limiter, fine, []grpclimit.Option{grpclimit.ByMetadata("X Api Key")}, `grpclimit: By`},
		{limiter, fine, []grpclimit.Option{grpclimit.Join()}, `grpclimit: By`},
		{limiter, fine, []grpclimit.Option{grpclimit.Join(grpclimit.ByPeer(), nil)}, `grpclimit: By`},
		{limiter, fine, []grpclimit.Option{grpclimit.ByPeer(), grpclimit.ByMetadata("x-api-key")}, `grpclimit: the limit "default": By is used twice, and the second would replace the first: use Join to count by both together`},
		{limiter, fine, []grpclimit.Option{grpclimit.Name("a"), grpclimit.Name("b")}, `grpclimit: the limit "b": Name is used twice`},
		{limiter, fine, []grpclimit.Option{grpclimit.Also(fine, grpclimit.Cost(nil), grpclimit.Cost(nil))}, `grpclimit: the limit "default-2": Cost is used twice`},
		{limiter, fine, []grpclimit.Option{grpclimit.LimitBy(nil), grpclimit.LimitBy(nil)}, `grpclimit: the limit "default": LimitBy is used twice`},
		{limiter, fine, []grpclimit.Option{grpclimit.OnError(nil), grpclimit.OnError(nil)}, `grpclimit: the limit "default": OnError is used twice`},
		{limiter, fine, []grpclimit.Option{grpclimit.Wait(1), grpclimit.Wait(2)}, `grpclimit: the limit "default": Wait is used twice`},
		{limiter, fine, []grpclimit.Option{grpclimit.Methods()}, `grpclimit: the limit "default": Methods has no values`},
		{limiter, headgate.Concurrent(2), []grpclimit.Option{grpclimit.Wait(1)}, `grpclimit: Wait of the limit "default" has no effect on Concurrent`},
		{limiter, headgate.Concurrent(2), []grpclimit.Option{grpclimit.Wait(1), grpclimit.Also(fine)}, ""},
		{limiter, headgate.Concurrent(2), []grpclimit.Option{grpclimit.Wait(1), grpclimit.LimitBy(func(*grpclimit.Call) (headgate.Limit, bool) { return fine, true })}, ""},
		{&headgate.Limiter{}, fine, nil, "grpclimit: no limiter: "},
		{limiter, fine, []grpclimit.Option{grpclimit.Cost(nil)}, `grpclimit: Cost of the limit "default" is nil`},
	} {
		if row.limiter == limiter {
			row.limiter, _ = newLimiter() // where no other interceptor counts
		}
		err := grpclimit.Validate(row.limiter, row.limit, row.options...)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)) {
			t.Errorf("Validate: %v, want %q", err, row.want)
		}
		for name, build := range map[string]func(){
			"UnaryServer":  func() { grpclimit.UnaryServer(row.limiter, row.limit, row.options...) },
			"StreamServer": func() { grpclimit.StreamServer(row.limiter, row.limit, row.options...) },
			"UnaryClient":  func() { grpclimit.UnaryClient(row.limiter, row.limit, row.options...) },
			"StreamClient": func() { grpclimit.StreamClient(row.limiter, row.limit, row.options...) },
		} {
			if got := panicOf(build); (got == nil) != (err == nil) || err != nil && got.Error() != err.Error() {
				t.Errorf("%s panics with %v, Validate says %v", name, got, err)
			}
		}
	}
}

// panicOf returns the error that f panics with, or nil.
func panicOf(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// Each call has the limit of its plan, which refusals name.
func TestLimitBy(t *testing.T) {
	limiter, _ := newLimiter()
	plans := map[string]headgate.Limit{
		"two": headgate.PerMinute(2), "pro": headgate.PerMinute(2).WithName("pro"), "staff": headgate.Unlimited(), "broken": {},
	}
	var heard error
	i := grpclimit.UnaryServer(limiter, headgate.PerMinute(1), grpclimit.All(),
		grpclimit.OnError(func(_ context.Context, err error) { heard = err }),
		grpclimit.LimitBy(func(c *grpclimit.Call) (headgate.Limit, bool) {
			limit, ok := plans[strings.Join(c.Metadata("plan"), "")]
			return limit, ok
		}))
	for n, row := range []struct {
		plan string
		code codes.Code
		want string
	}{
		{"", codes.OK, ""},
		{"", codes.ResourceExhausted, "limit:default 1/minute token_bucket"},
		{"two", codes.OK, ""},
		{"pro", codes.OK, ""},
		{"two", codes.OK, ""},
		{"two", codes.ResourceExhausted, "limit:default 2/minute token_bucket"},
		{"broken", codes.Unavailable, ""},
		{"pro", codes.OK, ""},
		{"pro", codes.ResourceExhausted, "limit:pro 2/minute token_bucket"},
		{"staff", codes.OK, ""},
	} {
		heard = nil
		err := call(metadata.NewIncomingContext(context.Background(), metadata.Pairs("plan", row.plan)), i, "")
		if status.Code(err) != row.code || errors.Is(heard, headgate.ErrInvalidLimit) != (row.plan == "broken") {
			t.Fatalf("call %d of plan %q: %v, %v", n, row.plan, err, heard)
		}
		if row.want == "" {
			continue
		}
		if v := details[*errdetails.QuotaFailure](t, err).GetViolations()[0]; v.GetSubject()+" "+v.GetDescription() != row.want {
			t.Errorf("call %d of plan %q: %v, want %s", n, row.plan, v, row.want)
		}
	}
}

// A limit from LimitBy never shares a count with another limit of the interceptor.
func TestEachLimitOfACallHasItsCount(t *testing.T) {
	limiter, _ := newLimiter()
	i := grpclimit.UnaryServer(limiter, headgate.PerMinute(100), grpclimit.ByMetadata("key"),
		grpclimit.LimitBy(func(c *grpclimit.Call) (headgate.Limit, bool) {
			return headgate.PerMinute(6), len(c.Metadata("plan")) > 0
		}),
		grpclimit.Also(headgate.PerMinute(6), grpclimit.ByMetadata("user")))
	passed := func(pairs ...string) (n int) {
		for range 10 {
			if call(metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...)), i, "") == nil {
				n++
			}
		}
		return n
	}
	if got := passed("key", "bob", "user", "eve", "plan", "six"); got != 6 {
		t.Errorf("%d of eve's pass, want 6", got)
	}
	without, with := passed("key", "1", "user", "bob"), passed("key", "2", "user", "bob", "plan", "six")
	if without != 6 || with != 0 {
		t.Errorf("%d of bob's pass without a plan and then %d with one, want 6 in all", without, with)
	}
}

// If there are several values, the first counts, as read by handlers.
func TestFirstValueCounts(t *testing.T) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("K", "real", "k", "junk", "k", ""))
	key, _ := grpclimit.ByMetadata("K")(&grpclimit.Call{Context: ctx})
	if want := metadata.ValueFromIncomingContext(ctx, "k")[0]; key != want || want != "real" {
		t.Errorf("counted by %q, the handler reads %q", key, want)
	}
}
