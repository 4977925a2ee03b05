package queue_test

import (
	"crypto/rand"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// Entries of a line that another limit refuses, such as one for their client, wait alone: the
// others of the line continue, and they follow in order when they may.
func TestOtherLimitsHoldOnlyTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		asked := map[string]int{}
		b.mu.Lock()
		b.policy.TTL = 48 * time.Hour
		b.take = func(r *queue.Ref, at time.Time) (queue.Permit, error) {
			client := r.Claims[0].Key
			asked[client]++
			if left := 24*time.Hour - at.Sub(b.begin); client == "mallory" && left > 0 {
				return queue.Permit{RetryAfter: left, By: queue.Claim{Rule: "per-client", Key: client}}, nil
			}
			return queue.Permit{Allowed: true}, nil
		}
		b.mu.Unlock()
		put := func(name, client string) {
			e := b.entry(name)
			e.Claims = []queue.Claim{{Rule: "per-client", Key: client, Cost: 1}}
			if _, err := b.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a1", "a2", "a3"} {
			put(name, "mallory")
		}
		put("a4", "ann")
		synctest.Wait()
		b.want("0s a4")
		time.Sleep(time.Hour)
		put("a5", "bob")
		put("a6", "mallory")
		synctest.Wait()
		b.want("0s a4", "1h0m0s a5")
		b.mu.Lock()
		if asked["mallory"] > 61 {
			t.Errorf("asked %d times in an hour for a client that has to wait, want once a minute", asked["mallory"])
		}
		b.mu.Unlock()
		time.Sleep(24 * time.Hour)
		b.mu.Lock()
		sent := len(b.sent)
		var order string
		for _, s := range b.sent[2:] {
			order += s[len(s)-2:]
		}
		b.mu.Unlock()
		if sent != 6 || order != "a1a2a3a6" {
			t.Errorf("sent %d, at last %s", sent, order)
		}
	})
}

// A limit that is free earlier than it said, by a refund, a reset or a reload, is asked again: soon
// if a request joins the line, after a minute if none does.
func TestLimitThatIsFreeEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		var free time.Time
		asked := 0
		b.mu.Lock()
		b.take = func(_ *queue.Ref, at time.Time) (queue.Permit, error) {
			if asked++; at.Before(free) {
				return queue.Permit{RetryAfter: free.Sub(at), Own: true}, nil
			}
			return queue.Permit{Allowed: true}, nil
		}
		frees := func(in time.Duration) {
			b.mu.Lock()
			free = time.Now().Add(in)
			b.mu.Unlock()
		}
		b.mu.Unlock()
		frees(time.Hour)
		b.accept("a1", "a2")
		time.Sleep(10 * time.Second)
		frees(0)
		b.accept("a3")
		synctest.Wait()
		b.want("10s a1", "10s a2", "10s a3")
		frees(time.Hour)
		b.accept("a4")
		time.Sleep(40 * time.Second)
		frees(0)
		time.Sleep(21 * time.Second)
		b.want("10s a1", "10s a2", "10s a3", "1m10s a4")
		frees(100 * time.Second)
		b.mu.Lock()
		asked = 0
		b.mu.Unlock()
		for range 100 {
			b.accept("a5")
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if asked > 2 {
			t.Errorf("asked %d times in a second, in which 100 requests joined", asked)
		}
	})
}

// A ban makes no dead letter of what waits, and one entry at a time asks early.
func TestBanThatEndsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		asked, asking, most := 0, 0, 0
		b.mu.Lock()
		b.policy.Concurrency = 10
		b.take = func(_ *queue.Ref, at time.Time) (queue.Permit, error) {
			if asked++; asked > 20 { // the first round
				asking++
				most = max(most, asking)
				b.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				b.mu.Lock()
				asking--
			}
			switch in := at.Sub(b.begin); {
			case in > 50*time.Second && in < 70*time.Second:
				return queue.Permit{RetryAfter: 70*time.Second - in, Exception: "its key is banned", Own: true}, nil
			case in < 30*time.Minute:
				return queue.Permit{RetryAfter: 30*time.Minute - in, Own: true}, nil
			}
			return queue.Permit{Allowed: true}, nil
		}
		b.mu.Unlock()
		for range 20 {
			b.accept("a1")
		}
		time.Sleep(20 * time.Minute)
		b.mu.Lock()
		if asked > 60 || most > 1 {
			t.Errorf("asked %d times, %d at once; want about 40, one at a time", asked, most)
		}
		b.mu.Unlock()
		time.Sleep(20 * time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.sent) != 20 {
			t.Errorf("sent %d of 20", len(b.sent))
		}
	})
}

// A limit that frees a place every two seconds is asked while others are being sent, which takes
// long: one at a time is asked, and as many are sent at once as the rule says.
func TestAskedWhileOthersAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.mu.Lock()
		b.policy.Concurrency = 10
		next := b.begin
		b.take = func(_ *queue.Ref, at time.Time) (queue.Permit, error) {
			if wait := next.Sub(at); wait > 0 {
				return queue.Permit{RetryAfter: wait, Own: true}, nil
			}
			next = at.Add(2 * time.Second)
			return queue.Permit{Allowed: true}, nil
		}
		b.send = func(*queue.Entry) (queue.Answer, error) {
			time.Sleep(8 * time.Second)
			return queue.Answer{Status: http.StatusOK}, nil
		}
		b.mu.Unlock()
		for range 14 {
			b.accept("a1")
		}
		time.Sleep(30 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.sent) != 14 {
			t.Errorf("sent %d of 14 in half a minute: %q", len(b.sent), b.sent)
		}
	})
}

// Requests that are asked about for the first time during a ban, as after a restart, wait for its
// end, unless they expire before.
func TestBanFromTheStart(t *testing.T) {
	for _, concurrency := range []int{1, 5} {
		for ban, dead := range map[time.Duration]uint64{100 * time.Second: 0, 48 * time.Hour: 4} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.close()
				b.mu.Lock()
				b.policy.Concurrency = concurrency
				b.take = func(_ *queue.Ref, at time.Time) (queue.Permit, error) {
					if left := ban - at.Sub(b.begin); left > 0 {
						return queue.Permit{Exception: "its key is banned", RetryAfter: left, Own: true}, nil
					}
					return queue.Permit{Allowed: true}, nil
				}
				b.mu.Unlock()
				b.accept("a1", "a2", "a3", "a4")
				time.Sleep(5 * time.Minute)
				if s := b.stats(); s.Buried != dead || s.Delivered != 4-dead {
					t.Errorf("ban of %v: %+v, want %d dead letters and the others sent", ban, s, dead)
				}
			})
		}
	}
}

// One client of a line is banned while its requests wait for a limit of its own. They wait alone, and
// those of others pass.
func TestBanOfOneHoldsBackNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		var next time.Time // when the limit of the line is free
		b.mu.Lock()
		b.take = func(r *queue.Ref, at time.Time) (queue.Permit, error) {
			in := at.Sub(b.begin)
			if of := r.Claims[0]; of.Key == "banned" {
				p := queue.Permit{By: of, RetryAfter: 20*time.Minute - in}
				if in > 30*time.Second && in < 10*time.Minute {
					p.Exception, p.RetryAfter = "its key is banned", 10*time.Minute-in
				}
				if p.Allowed = p.RetryAfter <= 0; !p.Allowed {
					return p, nil
				}
			}
			if at.Before(next) {
				return queue.Permit{Own: true, RetryAfter: next.Sub(at)}, nil
			}
			next = at.Add(time.Second)
			return queue.Permit{Allowed: true}, nil
		}
		b.mu.Unlock()
		accept := func(name, client string) {
			e := b.entry(name)
			e.Claims = []queue.Claim{{Rule: "per-client", Key: client, Cost: 1}}
			if _, err := b.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			accept("a0", "banned")
		}
		for range 300 {
			accept("a1", "other")
			time.Sleep(time.Second)
		}
		b.mu.Lock()
		sent := len(b.sent)
		b.mu.Unlock()
		if sent < 290 {
			t.Errorf("%d of 300 requests of others sent in five minutes", sent)
		}
		time.Sleep(20 * time.Minute)
		if s := b.stats(); s.Dead != 0 || s.Entries != 0 {
			t.Errorf("%+v, want the five sent when their limit is free", s)
		}
	})
}

// Another limit than the line's that is free earlier is asked again within a minute too, but not
// one that counts what it refuses.
func TestOtherLimitThatIsFreeEarlier(t *testing.T) {
	for counts, most := range map[bool]time.Duration{false: 35 * time.Second, true: time.Hour + 3*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			var asked []time.Duration
			b.mu.Lock()
			b.take = func(_ *queue.Ref, at time.Time) (queue.Permit, error) {
				asked = append(asked, at.Sub(b.begin))
				if len(asked) == 1 {
					return queue.Permit{RetryAfter: time.Hour, By: queue.Claim{Rule: "all", Key: "k"}, Counts: counts}, nil
				}
				return queue.Permit{Allowed: true}, nil
			}
			b.mu.Unlock()
			e := b.entry("a1")
			e.Claims = []queue.Claim{{Rule: "all", Key: "k", Cost: 1}}
			if _, err := b.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			b.mu.Lock()
			defer b.mu.Unlock()
			if least := most - 35*time.Second; len(asked) != 2 || asked[1] < least || asked[1] > most+30*time.Second {
				t.Errorf("counts %v: asked at %v, want the second time from %v to %v", counts, asked, least, most)
			}
		})
	}
}

// What frees a limit can wake those that wait for it, by their own key or by that of another limit,
// but not for one that counts what it refuses.
func TestLookAgain(t *testing.T) {
	for _, c := range []struct {
		own, counts bool
		woken       string
		sent        bool
	}{{true, false, "a", true}, {true, false, "b", false}, {false, false, "k", true}, {false, false, "other", false}, {false, true, "k", false}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			asked := 0
			b.mu.Lock()
			b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
				if asked++; asked > 2 {
					return queue.Permit{Allowed: true}, nil
				}
				p := queue.Permit{RetryAfter: time.Hour, Own: c.own, Counts: c.counts}
				if !c.own {
					p.By = queue.Claim{Rule: "all", Key: "k"}
				}
				return p, nil
			}
			b.mu.Unlock()
			e := b.entry("a1")
			e.Claims = []queue.Claim{{Rule: "all", Key: "k", Cost: 1}}
			if _, err := b.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for range 2 {
				time.Sleep(time.Second)
				b.LookAgain(func(key string) bool { return key == c.woken })
				synctest.Wait()
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if (len(b.sent) == 1) != c.sent || !c.sent && asked != 1 {
				t.Errorf("%+v: asked %d times, sent %q", c, asked, b.sent)
			}
		})
	}
}

// A refusal that comes after the call, of an attempt that began before it, does not count.
func TestLookAgainDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		asked := 0
		b.mu.Lock()
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			if asked++; asked > 1 {
				return queue.Permit{Allowed: true}, nil
			}
			b.mu.Unlock()
			time.Sleep(time.Second)
			b.mu.Lock()
			return queue.Permit{RetryAfter: time.Hour, Own: true}, nil
		}
		b.mu.Unlock()
		b.accept("a1")
		synctest.Wait()
		b.LookAgain(func(string) bool { return true })
		time.Sleep(1500 * time.Millisecond)
		b.want("1s a1")
	})
}

// A request with two values of a key waits for the one that refuses it, and holds up nothing
// else: neither the line of the other value, nor entries that another limit counts under it.
func TestOneKeyHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.mu.Lock()
		b.policy.TTL = 48 * time.Hour
		b.take = func(r *queue.Ref, _ time.Time) (queue.Permit, error) {
			for _, c := range r.Claims {
				if c.Key == "attacker" {
					return queue.Permit{RetryAfter: 24 * time.Hour, By: queue.Claim{Rule: c.Rule, Key: c.Key}}, nil
				}
			}
			return queue.Permit{Allowed: true}, nil
		}
		b.mu.Unlock()
		for _, row := range []struct {
			name string
			keys []string
		}{{"a1", []string{"attacker", "victim"}}, {"a2", []string{"victim"}}, {"a3", []string{"victim", "other"}}} {
			e := b.entry(row.name)
			for _, key := range row.keys {
				e.Claims = append(e.Claims, queue.Claim{Rule: e.Rule, Key: key, Cost: 1})
			}
			if _, err := b.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		b.want("0s a2", "0s a3")
	})
}

// Entries of an owner whose share of another limit is used up hold up no entries of others in their
// line, though these have a claim on the same limit. If the limit itself is used up, all wait.
func TestShareHoldsNoOther(t *testing.T) {
	for _, by := range []queue.Claim{{Rule: "all", Owner: "greedy"}, {Rule: "all"}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			b.mu.Lock()
			b.take = func(r *queue.Ref, at time.Time) (queue.Permit, error) {
				if r.Claims[0].Owner == "greedy" && at.Sub(b.begin) < 3*time.Second {
					return queue.Permit{RetryAfter: 3*time.Second - at.Sub(b.begin), By: by}, nil
				}
				return queue.Permit{Allowed: true}, nil
			}
			b.mu.Unlock()
			for _, row := range [][2]string{{"a1", "greedy"}, {"a2", "greedy"}, {"a3", "other"}} {
				e := b.entry(row[0])
				e.Claims = []queue.Claim{{Rule: "all", Cost: 1, Owner: row[1], Weight: 1}}
				if _, err := b.Accept(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if by.Owner != "" {
				b.want("0s a3")
			} else {
				b.want()
			}
			time.Sleep(time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.sent) != 3 {
				t.Errorf("sent %q in a minute, want all", b.sent)
			}
		})
	}
}

// The same idempotency key with a different API key is a different one.
func TestIdempotencyKeysAreTheirSenders(t *testing.T) {
	of := func(name, value string) [32]byte {
		e := queue.Entry{IdempotencyKey: "order-1", Header: http.Header{"Content-Type": {"a"}, "X-Request-Id": {rand.Text()}}}
		e.Header.Set(name, value)
		hash, ok := e.Idempotency()
		if !ok {
			t.Fatal("no idempotency key")
		}
		return hash
	}
	for _, name := range []string{
		"X-Api-Key", "X-ApiKey", "X-Auth-Token", "X-User-Id", "X-Tenant", "Apikey",
		"Cf-Access-Authenticated-User-Email", "X-Amzn-Oidc-Identity", "X-Goog-Authenticated-User-Email", "X-Ms-Client-Principal-Id",
		"X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Preferred-Username", "X-Forwarded-Groups", "X-Forwarded-Access-Token", "X-Forwarded-Client-Cert",
	} {
		if again := of(name, "a"); again != of(name, "a") || again == of(name, "b") || again == of("Date", "now") {
			t.Errorf("%s does not tell senders apart", name)
		}
	}
	for _, name := range []string{
		"Traceparent", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "Sec-Ch-Ua", "If-None-Match", "X-Retry-Count",
		// Each way, CDN and SDK adds its own to every request.
		"X-Amzn-Trace-Id", "Cf-Ray", "X-B3-TraceId", "B3", "X-Cloud-Trace-Context", "X-Datadog-Trace-Id", "X-Vercel-Id", "X-Amz-Cf-Id", "X-Azure-Ref", "X-Correlation-Id",
		"Fly-Request-Id", "Sentry-Trace", "Baggage", "Uber-Trace-Id", "X-Envoy-Attempt-Count", "X-Request-Start", "X-Envoy-External-Address", "Cf-Connecting-Ip", "Cf-Ipcountry",
		"Newrelic", "Elastic-Apm-Traceparent", "X-Queue-Start", "X-Appengine-Request-Log-Id", "X-Edge-Request-Id", "X-Unique-Id", "X-Heroku-Request-Id", "Fastly-Client-Ip", "X-Timer",
		"Amz-Sdk-Invocation-Id", "X-Stainless-Retry-Count", "X-Ms-Client-Request-Id", "X-Amz-Request-Id", "True-Client-Ip", "X-Azure-Clientip",
		"X-Varnish", "Cloudfront-Viewer-Address", "X-Dynatrace", "X-Instana-T", "Singularityheader", "X-Newrelic-Transaction", "Ot-Tracer-Spanid", "X-Transaction-Id", "X-Span-Id", "X-Attempt", "Grpc-Timeout",
	} {
		if of(name, "a") != of(name, "b") {
			t.Errorf("%s is used to tell senders apart", name)
		}
	}
}
