package simulate_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
)

// verdicts replays lines and returns a letter for each request, in the order of
// the decisions: a for allowed, r for refused, d for delayed, s for what a rule in
// shadow mode would have refused.
func verdicts(t *testing.T, o simulate.Options) string {
	t.Helper()
	var b strings.Builder
	o.Decided = func(r simulate.Request) {
		switch v := r.Verdict; {
		case !v.Allowed:
			b.WriteByte('r')
		case v.WouldRefuse > 0:
			b.WriteByte('s')
		case v.Delay > 0:
			b.WriteByte('d')
		default:
			b.WriteByte('a')
		}
	}
	run(t, o)
	return b.String()
}

// at returns a line for each of the seconds after noon, of one client.
func at(seconds ...float64) string {
	var b strings.Builder
	for _, s := range seconds {
		b.WriteString(line(noon.Add(time.Duration(s*float64(time.Second))), "198.51.100.7", "GET /a"))
	}
	return b.String()
}

// Every algorithm decides a log as documented.
func TestVerdictsOfAlgorithms(t *testing.T) {
	rows := []struct{ name, limit, log, want string }{
		{
			"a bucket refills one at a time",
			"rate: 3/minute",
			at(0, 0, 0, 0, 19, 20, 20, 40, 59, 60), "aaarrarara",
		},
		{
			"a bucket holds its burst, and no more after an hour",
			"rate: 1/second, burst: 4",
			at(0, 0, 0, 0, 0, 3600, 3600, 3600, 3600, 3600), "aaaaraaaar",
		},
		{
			"a fixed window begins on the minute",
			"rate: 2/minute, algorithm: fixed_window",
			at(30, 58, 59, 60, 61, 62, 119, 120), "aaraarra",
		},
		{
			"a sliding log looks back exactly a minute",
			"rate: 2/minute, algorithm: sliding_log",
			at(0, 30, 59, 60, 60, 89, 90), "aararra",
		},
		{
			"a sliding window weighs the minute before",
			"rate: 4/minute, algorithm: sliding_window",
			at(50, 51, 52, 53, 60, 74, 75, 89, 90), "aaaararar",
		},
		{
			"a leaky bucket lets its queue wait, and refuses beyond it",
			"rate: 1/second, burst: 3, algorithm: leaky_bucket",
			at(0, 0, 0, 0, 1, 1, 10), "addrdra",
		},
		{
			"no limit refuses nothing",
			"rate: unlimited",
			at(0, 0, 0, 0), "aaaa",
		},
		{
			"a rule in shadow mode only says so",
			"rate: 2/minute, mode: shadow",
			at(0, 0, 0, 30, 31), "aasas",
		},
		{
			"a request may cost more than one",
			"rate: 5/minute, cost: 2",
			at(0, 0, 0, 12, 24), "aarar",
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			rules := "domain: d\nlimits:\n  - {name: a, key: client_ip, " + row.limit + "}\n"
			if got := verdicts(t, options(t, rules, bytesLog("a.log", []byte(row.log)))); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// A share is that of the client who asks, also where requests of others are read before it is decided.
func TestSharesAreOfTheirOwners(t *testing.T) {
	var log strings.Builder
	for i, client := range strings.Repeat("1", 150) + strings.Repeat("2", 40) {
		log.WriteString(line(noon.Add(time.Duration(i)*time.Millisecond), "198.51.100."+string(client), "GET /a"))
	}
	const rules = `
domain: d
limits:
  - {name: a, rate: 10/second, burst: 100, fair: {among: client_ip}}
`
	got := verdicts(t, options(t, rules, bytesLog("a.log", []byte(log.String()))))
	if first, second := strings.Count(got[:150], "a"), strings.Count(got[150:], "a"); first < 45 || first > 55 || second < 10 {
		t.Errorf("%d of the first client and %d of the second pass, want half of the burst, and a share of the rest", first, second)
	}
}

// Requests under several limits are charged to all of them or to none.
func TestSeveralLimitsAreOne(t *testing.T) {
	const rules = `
domain: d
limits:
  - {name: each, key: client_ip, rate: 2/minute}
  - {name: all, rate: 3/minute}
`
	lines := []string{"198.51.100.1", "198.51.100.1", "198.51.100.1", "198.51.100.2", "198.51.100.2", "198.51.100.3"}
	var log strings.Builder
	for _, ip := range lines {
		log.WriteString(line(noon, ip, "GET /"))
	}
	o := options(t, rules, bytesLog("a.log", []byte(log.String())))
	// The third is refused by the first rule and not charged to the second, which
	// so has one left for the fourth.
	if got := verdicts(t, o); got != "aararr" {
		t.Errorf("%s", got)
	}
	r := run(t, o)
	if each, all := r.Rules[0], r.Rules[1]; each.Refused != 1 || all.Refused != 2 || all.Requests != 6 || r.Refused != 3 {
		t.Errorf("%d by each, %d by all, of %d; %d in all", each.Refused, all.Refused, all.Requests, r.Refused)
	}
}

// Keys are read from the fields of the log.
func TestWhatIsCountedBy(t *testing.T) {
	const format = `$remote_addr [$time_iso8601] "$request" $host "$http_x_api_key" "$http_cookie" "$http_x_forwarded_for" $tenant`
	rows := []struct {
		name, key string
		// The values that two requests have.
		one, two string
	}{
		{"method", "method", `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "" "" t`, `192.0.2.1 [%s] "PUT / HTTP/1.1" h "k" "" "" t`},
		{"path", "path", `192.0.2.1 [%s] "GET /a HTTP/1.1" h "k" "" "" t`, `192.0.2.1 [%s] "GET /b HTTP/1.1" h "k" "" "" t`},
		{"host", "host", `192.0.2.1 [%s] "GET / HTTP/1.1" a.example "k" "" "" t`, `192.0.2.1 [%s] "GET / HTTP/1.1" b.example "k" "" "" t`},
		{"header", "header:X-Api-Key", `192.0.2.1 [%s] "GET / HTTP/1.1" h "k1" "" "" t`, `192.0.2.1 [%s] "GET / HTTP/1.1" h "k2" "" "" t`},
		{"host as a header", "header:Host", `192.0.2.1 [%s] "GET / HTTP/1.1" a "k" "" "" t`, `192.0.2.1 [%s] "GET / HTTP/1.1" b "k" "" "" t`},
		{"cookie", "cookie:session", `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "x=1; session=s1" "" t`, `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "x=1; session=s2" "" t`},
		{"query", "query:q", `192.0.2.1 [%s] "GET /?q=a%%20b HTTP/1.1" h "k" "" "" t`, `192.0.2.1 [%s] "GET /?q=c HTTP/1.1" h "k" "" "" t`},
		{"forwarded", "header:X-Forwarded-For", `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "" "a" t`, `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "" "b" t`},
		{"a variable of the log's own", "tenant", `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "" "" t1`, `192.0.2.1 [%s] "GET / HTTP/1.1" h "k" "" "" t2`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			when := noon.Format(time.RFC3339)
			log := fmt.Sprintf(strings.Repeat(row.one+"\n", 2), when, when) + fmt.Sprintf(row.two+"\n", when)
			o := options(t, "domain: d\nlimits:\n  - {name: a, key: [\""+row.key+"\"], rate: 1/hour}\n", bytesLog("a.log", []byte(log)))
			o.Format = formatOf(t, format, nil)
			if got := verdicts(t, o); got != "ara" {
				t.Errorf("%s, want ara: the second is of the same key, the third of another", got)
			}
		})
	}
}

// Addresses are counted in groups, as every door counts them: an IPv6 network is
// one client, and a trusted proxy is none.
func TestWhoTheClientIs(t *testing.T) {
	const format = `$remote_addr [$time_iso8601] "$request" "$http_x_forwarded_for"`
	clients, err := client.New(client.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Source: client.XForwardedFor,
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct{ name, one, two, want string }{
		{"the same address", `192.0.2.1 - -`, `192.0.2.1 - -`, "ar"},
		{"with its port", `192.0.2.1 - -`, `192.0.2.1:4711 - -`, "ar"},
		{"IPv4 as IPv6", `192.0.2.1 - -`, `::ffff:192.0.2.1 - -`, "ar"},
		{"another address", `192.0.2.1 - -`, `192.0.2.2 - -`, "aa"},
		{"the same network of IPv6", `2001:db8::1 - -`, `2001:db8::2:3 - -`, "ar"},
		{"another network of IPv6", `2001:db8::1 - -`, `2001:db8:0:1::1 - -`, "aa"},
		{"behind a trusted proxy", `10.0.0.1 - 203.0.113.5`, `10.0.0.2 - 203.0.113.5`, "ar"},
		{"two behind the same proxy", `10.0.0.1 - 203.0.113.5`, `10.0.0.1 - 203.0.113.6`, "aa"},
		{"what a client says of itself", `192.0.2.1 - 203.0.113.5`, `192.0.2.1 - 203.0.113.6`, "ar"},
		{"a name", `a.example - -`, `b.example - -`, "aa"},
		{"the same name", `a.example - -`, `a.example - -`, "ar"},
		{"no address", `- - -`, `- - -`, "ar"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var log strings.Builder
			for _, who := range []string{row.one, row.two} {
				fields := strings.Fields(who)
				fmt.Fprintf(&log, "%s [%s] \"GET / HTTP/1.1\" \"%s\"\n", fields[0], noon.Format(time.RFC3339), fields[2])
			}
			o := options(t, "domain: d\nlimits:\n  - {name: a, key: client_ip, rate: 1/hour}\n", bytesLog("a.log", []byte(log.String())))
			o.Format, o.Clients = formatOf(t, format, nil), clients
			if got := verdicts(t, o); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}
