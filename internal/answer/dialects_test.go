package answer_test

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

// noon is the time of the decisions: half a second after a whole second.
const noon = 1_700_000_000_500_000

func TestVendorHeaders(t *testing.T) {
	t.Parallel()
	at := func(p answer.Policy, micros int64) answer.Policy { p.At = micros; return p }
	tokens := answer.Policy{
		Name: "gpt.tokens", Limit: headgate.PerMinute(40000),
		Decision: store.Decision{Allowed: true, Limit: 40000, Remaining: 39112, Granted: 888, ResetAfter: 1332 * time.Millisecond},
	}
	perKey := answer.Policy{
		Name: "per-key", Limit: headgate.PerSecond(100).WithBurst(500),
		Decision: store.Decision{Allowed: true, Limit: 500, Remaining: 499, Granted: 1, ResetAfter: 10 * time.Millisecond},
	}
	tests := []struct {
		name    string
		dialect answer.Dialect
		list    []answer.Policy
		want    map[string]string
	}{
		{"github, admitted", answer.GitHub, []answer.Policy{at(daily, noon)}, map[string]string{
			"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "300", "X-Ratelimit-Used": "700",
			"X-Ratelimit-Reset": "1700046801", "X-Ratelimit-Resource": "daily",
		}},
		{"github, refused", answer.GitHub, []answer.Policy{at(daily, noon), at(login, noon)}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "5",
			"X-Ratelimit-Reset": "1700000061", "X-Ratelimit-Resource": "login", "Retry-After": "12",
		}},
		{"github, to the very second, and a name with bytes that are encoded", answer.GitHub, []answer.Policy{
			{Name: "50% of ~\x7f", Limit: login.Limit, Decision: login.Decision, At: noon - 500_000},
		}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "5",
			"X-Ratelimit-Reset": "1700000060", "X-Ratelimit-Resource": "50%25%20of%20~%7F", "Retry-After": "12",
		}},
		{"github, nobody knows the time", answer.GitHub, []answer.Policy{login}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "5",
			"X-Ratelimit-Resource": "login", "Retry-After": "12",
		}},
		{"openai, requests", answer.OpenAI, []answer.Policy{perKey}, map[string]string{
			"X-Ratelimit-Limit-Requests": "500", "X-Ratelimit-Remaining-Requests": "499", "X-Ratelimit-Reset-Requests": "10ms",
		}},
		{"openai, both", answer.OpenAI, []answer.Policy{daily, tokens, login}, map[string]string{
			"X-Ratelimit-Limit-Requests": "5", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m0s",
			"X-Ratelimit-Limit-Tokens": "40000", "X-Ratelimit-Remaining-Tokens": "39112", "X-Ratelimit-Reset-Tokens": "1.332s",
			"Retry-After": "12",
		}},
		{"openai, tokens after a separator, back in a second", answer.OpenAI, []answer.Policy{
			{Name: "/tokens", Limit: tokens.Limit, Decision: store.Decision{Allowed: true, Limit: 40000, ResetAfter: time.Second}},
		}, map[string]string{
			"X-Ratelimit-Limit-Tokens": "40000", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1s",
		}},
		{"draft-03", answer.Draft03, []answer.Policy{login}, map[string]string{
			"Ratelimit-Limit": "5, 5;w=60", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "60", "Retry-After": "12",
		}},
		{"draft-03, several and a burst", answer.Draft03, []answer.Policy{perKey, daily}, map[string]string{
			"Ratelimit-Limit": "1000, 100;w=1;burst=500, 1000;w=86400", "Ratelimit-Remaining": "300", "Ratelimit-Reset": "46801",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			answer.Headers(h, tt.dialect, tt.list...)
			want := http.Header{}
			for name, value := range tt.want {
				want.Set(name, value)
			}
			if diff := cmp.Diff(want, h); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// number returns the number in a field, or -1 if it is not a plain whole number.
func number(h http.Header, name string) int64 {
	values := h.Values(name)
	if len(values) != 1 || !regexp.MustCompile(`^(0|[1-9][0-9]*)$`).MatchString(values[0]) {
		return -1
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// names returns the field names in h except Retry-After, in lower case.
func names(h http.Header) map[string]bool {
	out := map[string]bool{}
	for name := range h {
		out[strings.ToLower(name)] = true
	}
	delete(out, "retry-after")
	return out
}

func set(list ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range list {
		out[name] = true
	}
	return out
}

// A strict reader of each dialect finds the values of random decisions in the fields,
// and nothing else.
func TestDialectsReadBack(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 1))
	for range 2_000 {
		list := make([]answer.Policy, 1+random.IntN(3))
		for i := range list {
			list[i] = anyPolicy(random)
		}
		readGitHub(t, list)
		readOpenAI(t, list)
		readDraft03(t, list)
		if t.Failed() {
			return
		}
	}
}

func anyPolicy(random *rand.Rand) answer.Policy {
	n := 1 + random.Int64N(100_000)
	p := answer.Policy{
		Name:  []string{"login", "per-key", "tokens", "chat:Tokens", "tokenizer", "größe 1"}[random.IntN(6)],
		Limit: headgate.Per(n, time.Duration(1+random.Int64N(int64(48*time.Hour/time.Microsecond)))*time.Microsecond), At: noon + random.Int64N(1e12),
	}
	p.Decision = store.Decision{
		Allowed: random.IntN(2) == 0, Limit: n, Remaining: random.Int64N(2*n+1) - n/2,
		ResetAfter: time.Duration(random.Int64N(int64(1 << random.IntN(48)))),
	}
	if !p.Decision.Allowed {
		p.Decision.Reason = headgate.ReasonLimited
		p.Decision.RetryAfter = time.Duration(random.Int64N(int64(p.Decision.ResetAfter) + 1))
	}
	return p
}

// tightest returns the policy that fields for a single limit describe.
func tightest(list []answer.Policy) answer.Policy {
	best := list[0]
	for _, p := range list[1:] {
		if p.Decision.Tighter(best.Decision) {
			best = p
		}
	}
	return best
}

func readGitHub(t *testing.T, list []answer.Policy) {
	t.Helper()
	h := http.Header{}
	answer.Headers(h, answer.GitHub, list...)
	p := tightest(list)
	limit, left, used := number(h, "x-ratelimit-limit"), number(h, "x-ratelimit-remaining"), number(h, "x-ratelimit-used")
	if limit != p.Decision.Limit || left != max(p.Decision.Remaining, 0) || used != max(limit-left, 0) {
		t.Errorf("%+v reads as limit %d, remaining %d, used %d", p.Decision, limit, left, used)
	}
	end := time.UnixMicro(p.At).Add(p.Decision.ResetAfter)
	told := time.Unix(number(h, "x-ratelimit-reset"), 0)
	if told.Before(end.Truncate(time.Microsecond)) || told.Sub(end) >= time.Second+time.Microsecond {
		t.Errorf("the reset reads as %s, want %s", told, end)
	}
	if !regexp.MustCompile(`^[!-~]+$`).MatchString(h.Get("x-ratelimit-resource")) {
		t.Errorf("resource %q", h.Get("x-ratelimit-resource"))
	}
	want := set("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-reset", "x-ratelimit-resource")
	if diff := cmp.Diff(want, names(h)); diff != "" {
		t.Errorf("fields: -want +got\n%s", diff)
	}
}

func readOpenAI(t *testing.T, list []answer.Policy) {
	t.Helper()
	h := http.Header{}
	answer.Headers(h, answer.OpenAI, list...)
	groups := map[string][]answer.Policy{}
	for _, p := range list {
		group := "requests"
		if p.Name == "tokens" || p.Name == "chat:Tokens" {
			group = "tokens"
		}
		groups[group] = append(groups[group], p)
	}
	want := map[string]bool{}
	for group, list := range groups {
		p := tightest(list)
		limit, left := number(h, "x-ratelimit-limit-"+group), number(h, "x-ratelimit-remaining-"+group)
		if limit != p.Decision.Limit || left != max(p.Decision.Remaining, 0) {
			t.Errorf("%s: %+v reads as limit %d, remaining %d", group, p.Decision, limit, left)
		}
		text := h.Get("x-ratelimit-reset-" + group)
		reset, err := time.ParseDuration(text)
		if err != nil || reset < p.Decision.ResetAfter || reset-p.Decision.ResetAfter >= time.Millisecond || reset.String() != text {
			t.Errorf("%s: the reset %q of %s reads as %s, %v", group, text, p.Decision.ResetAfter, reset, err)
		}
		for _, name := range []string{"limit", "remaining", "reset"} {
			want["x-ratelimit-"+name+"-"+group] = true
		}
	}
	if diff := cmp.Diff(want, names(h)); diff != "" {
		t.Errorf("fields: -want +got\n%s", diff)
	}
}

func readDraft03(t *testing.T, list []answer.Policy) {
	t.Helper()
	h := http.Header{}
	answer.Headers(h, answer.Draft03, list...)
	p := tightest(list)
	members := strings.Split(h.Get("ratelimit-limit"), ", ")
	if len(members) != len(list)+1 || members[0] != strconv.FormatInt(p.Decision.Limit, 10) {
		t.Fatalf("RateLimit-Limit %q of %d limits, the tightest %d", members, len(list), p.Decision.Limit)
	}
	policy := regexp.MustCompile(`^([0-9]+);w=([1-9][0-9]*)(;burst=[0-9]+)?$`)
	for i, member := range members[1:] {
		m := policy.FindStringSubmatch(member)
		if m == nil {
			t.Fatalf("%q is no quota policy", member)
		}
		quota, _ := strconv.ParseFloat(m[1], 64)
		window, _ := strconv.ParseFloat(m[2], 64)
		if rate := float64(list[i].Limit.N()) / list[i].Limit.Period().Seconds(); quota/window > rate*1.000001 {
			t.Errorf("%q is more than %s", member, list[i].Limit)
		}
	}
	left, reset := number(h, "ratelimit-remaining"), number(h, "ratelimit-reset")
	if left != max(p.Decision.Remaining, 0) || reset != answer.Seconds(p.Decision.ResetAfter) {
		t.Errorf("%+v reads as remaining %d, reset %d", p.Decision, left, reset)
	}
	if diff := cmp.Diff(set("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"), names(h)); diff != "" {
		t.Errorf("fields: -want +got\n%s", diff)
	}
}

// A domain may choose any existing dialect, and no other.
func TestRulesKnowTheDialects(t *testing.T) {
	t.Parallel()
	for _, d := range append(answer.Dialects(), answer.Dialect(99)) {
		set, diagnostics := rulefile.Parse(rulefile.Source{Data: []byte("domain: d\nheaders: " + strconv.Quote(d.String()) + "\nlimits: [{name: a, rate: 1/s}]\n")})
		_, known := answer.ParseDialect(d.String())
		if (set != nil) != known {
			t.Fatalf("%s: %v", d, diagnostics)
		}
		if known && answer.None.Or(set.Rule("d", "a").Headers) != d {
			t.Errorf("%s reads as %s", d, answer.None.Or(set.Rule("d", "a").Headers))
		}
	}
	_, diagnostics := rulefile.Parse(rulefile.Source{Data: []byte("domain: d\nheaders: x\n")})
	var hint string
	for _, d := range answer.Dialects() {
		hint += ", " + d.String()
	}
	if got := diagnostics[0].Hint; got != "use one of "+hint[2:] {
		t.Errorf("known to rules: %s; to answers: %s", got, hint)
	}
	if got := answer.IETF.Or(""); got != answer.IETF {
		t.Errorf("without a choice: %s", got)
	}
}

func TestDialectsAllocate(t *testing.T) {
	h := http.Header{}
	for _, d := range answer.Dialects() {
		if n := testing.AllocsPerRun(100, func() {
			clear(h)
			answer.Headers(h, d, daily, login)
		}); n > 2 {
			t.Errorf("%s: %v allocations, want 2", d, n)
		}
	}
}
