package queue

import (
	"bytes"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() *Entry {
	return &Entry{
		ID: "5K2J0B8H3M4Q6R1T9V7P2C4D", Domain: "api", Rule: "orders", Scope: "\x03api\x06orders", Key: "\x01a",
		Claims: []Claim{{Rule: "orders", Key: "\x01a", Cost: 1}, {Rule: "all", Cost: 20, Given: "@Asia/Tokyo"}, {Rule: "users", Key: "\x01a", Cost: 1, Member: 1<<52 - 1, Class: 2}, {Rule: "shared", Cost: 1, Owner: "\x01b", Weight: 5}},
		Method: "POST", URI: "/orders?x=1", Host: "api.example",
		Header: http.Header{"Content-Type": {"application/json"}, "X-Many": {"a", "b"}}, Body: []byte(`{"n":1}`),
		IdempotencyKey: "mine", Accepted: time.UnixMicro(1_700_000_000_123_456).UTC(), Expires: time.UnixMicro(1_700_086_400_000_000).UTC(),
	}
}

func TestRecordsKeepEverything(t *testing.T) {
	for name, e := range map[string]*Entry{"full": sample(), "empty": {Header: http.Header{}, Body: []byte{}, Accepted: time.UnixMicro(0).UTC(), Expires: time.UnixMicro(0).UTC()}} {
		got, err := Unmarshal(e.Marshal())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A record has the lowest version that holds it, which older servers can read.
func TestOldestVersionOfARecord(t *testing.T) {
	e := sample()
	for _, row := range []struct {
		version string
		without func()
	}{
		{"HGQ\x05", func() {}},
		{"HGQ\x04", func() { e.Claims[3].Owner, e.Claims[3].Weight = "", 0 }},
		{"HGQ\x03", func() { e.Claims[2].Class = 0 }},
		{"HGQ\x02", func() { e.Claims[2].Member = 0 }},
		{"HGQ\x01", func() { e.Claims[1].Given = "" }},
	} {
		row.without()
		record := e.Marshal()
		if !bytes.HasPrefix(record, []byte(row.version)) {
			t.Errorf("it begins with %q, want %q", record[:4], row.version)
		}
		got, err := Unmarshal(record)
		if diff := cmp.Diff(e, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
}

// A flipped bit or a truncated record is noticed, wherever it is.
func TestDamagedRecordsAreNoticed(t *testing.T) {
	whole := sample().Marshal()
	for i := range whole {
		for bit := range 8 {
			rotten := bytes.Clone(whole)
			rotten[i] ^= 1 << bit
			if _, err := Unmarshal(rotten); !errors.Is(err, ErrDamaged) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
		if _, err := Unmarshal(whole[:i]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(sample().Marshal())
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Unmarshal(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("an error of another kind: %v", err)
			}
			// Fields after a wrong checksum must do no harm either.
			_, _ = Unmarshal(sealed(b))
			return
		}
		again, err := Unmarshal(e.Marshal())
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Error(diff)
		}
	})
}

// sealed puts b between a valid header and a valid checksum.
func sealed(b []byte) []byte {
	w := writer{b: append([]byte(magic), b...)}
	return sum(w.b)
}

func TestFingerprintTellsRequestsApart(t *testing.T) {
	base := sample().Fingerprint()
	for name, change := range map[string]func(*Entry){
		"body": func(e *Entry) { e.Body = []byte("other") }, "uri": func(e *Entry) { e.URI = "/other" },
		"method": func(e *Entry) { e.Method = "PUT" }, "user": func(e *Entry) { e.Header.Set("Authorization", "other") },
		"site": func(e *Entry) { e.Header.Set("X-Forwarded-Host", "other.example") },
	} {
		e := sample()
		change(e)
		if e.Fingerprint() == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
	same := sample()
	same.ID, same.Accepted = "other", time.Now()
	same.Header.Set("User-Agent", "other")
	same.Header.Set("X-Forwarded-Host", same.Host)
	if same.Fingerprint() != base {
		t.Error("the same request has another fingerprint")
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	p := Policy{BackoffLeast: time.Second, BackoffMost: time.Minute}
	least := func(int64) int64 { return 0 }
	most := func(n int64) int64 { return n - 1 }
	for _, c := range []struct {
		attempt     int
		least, most time.Duration
	}{
		{1, 500 * time.Millisecond, time.Second},
		{2, time.Second, 2 * time.Second},
		{6, 16 * time.Second, 32 * time.Second},
		{7, 30 * time.Second, time.Minute},
		{1000, 30 * time.Second, time.Minute},
	} {
		if a, b := p.backoff(c.attempt, least), p.backoff(c.attempt, most); a != c.least || b != c.most {
			t.Errorf("after attempt %d from %s to %s, want %s to %s", c.attempt, a, b, c.least, c.most)
		}
	}
}
