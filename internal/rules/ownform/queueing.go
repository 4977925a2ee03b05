package ownform

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

const (
	maxQueueEntries     = 10_000_000
	maxQueueBytes       = 1 << 40
	maxQueueBody        = 64 << 20
	maxQueueTTL         = 30 * 24 * time.Hour
	maxQueueRetries     = 1000
	maxQueueConcurrency = 1000
	maxQueueBackoff     = 24 * time.Hour
	maxQueueTimeout     = time.Hour
	maxKeptResponse     = 1 << 20
)

func queueKeys() []string {
	return []string{
		"max_entries", "max_bytes", "max_body", "key_share", "ttl", "retries", "backoff", "concurrency", "timeout", "keep", "keep_response",
	}
}

// parseQueueing reads those keys of on_limit, of which there are none if f is
// nil.
func (p *Parser) parseQueueing(at *yamltext.Node, f yamltext.Fields, r *rules.Rule) {
	if r.OnLimit.Action != rules.Queue {
		return
	}
	if r.Limit.Valid() && r.Limit.Rule().CountDenied {
		p.Errorf(at, "leave one of them out", "requests cannot be queued where refused ones count: the queue would never get its turn")
	}
	if r.Concurrent() {
		p.Errorf(at, "limit the rate at which the queue is sent instead", "who is not among those under way cannot be queued: nobody knows when a place will be free")
	}
	q := rules.DefaultQueueing()
	number := func(key string, low, high int64, set func(int64)) {
		if n := f.Get(key); n != nil {
			if v, ok := p.Integer(n, key, low, high); ok {
				set(v)
			}
		}
	}
	bytes := func(key string, low, high int64, set func(int64)) {
		if n := f.Get(key); n != nil {
			if v, ok := p.byteSize(n, key, low, high); ok {
				set(v)
			}
		}
	}
	span := func(key string, low, high time.Duration, set func(time.Duration)) {
		if n := f.Get(key); n != nil {
			if text, ok := p.Span(n, key); ok {
				d, err := duration(text, low, high)
				if err != nil {
					p.Errorf(n, "", "%q: %v", key, err)
					return
				}
				set(d)
			}
		}
	}
	number("max_entries", 1, maxQueueEntries, func(v int64) { q.MaxEntries = v })
	bytes("max_bytes", 1, maxQueueBytes, func(v int64) { q.MaxBytes = v })
	bytes("max_body", 0, maxQueueBody, func(v int64) { q.MaxBody = v })
	if n := f.Get("key_share"); n != nil {
		p.parseKeyShare(n, &q)
	}
	span("ttl", time.Second, maxQueueTTL, func(d time.Duration) { q.TTL = d })
	number("retries", 0, maxQueueRetries, func(v int64) { q.Retries = int(v) })
	if n := f.Get("backoff"); n != nil {
		p.parseBackoff(n, &q)
	}
	number("concurrency", 1, maxQueueConcurrency, func(v int64) { q.Concurrency = int(v) })
	span("timeout", time.Millisecond, maxQueueTimeout, func(d time.Duration) { q.Timeout = d })
	span("keep", 0, maxQueueTTL, func(d time.Duration) { q.Keep = d })
	bytes("keep_response", 0, maxKeptResponse, func(v int64) { q.KeepResponse = v })
	r.OnLimit.Queueing = &q
}

// parseKeyShare reads a percentage.
func (p *Parser) parseKeyShare(n *yamltext.Node, q *rules.Queueing) {
	number, percent := strings.CutSuffix(n.Text, "%")
	v, err := strconv.ParseUint(number, 10, 8)
	if n.Kind != yamltext.Text || !percent || err != nil || v < 1 || v > 100 {
		p.Errorf(n, "for example 10%", "\"key_share\" must be from 1%% to 100%%")
		return
	}
	q.KeyShare = int64(v)
}

// parseBackoff reads one time, or two with .. between.
func (p *Parser) parseBackoff(n *yamltext.Node, q *rules.Queueing) {
	text, ok := p.Span(n, "backoff")
	if !ok {
		return
	}
	first, last, two := strings.Cut(text, "..")
	least, err := duration(first, time.Millisecond, maxQueueBackoff)
	most := least
	if err == nil && two {
		most, err = duration(last, least, maxQueueBackoff)
	}
	if err != nil {
		p.Errorf(n, "for example 1s..5m", "\"backoff\": %v", err)
		return
	}
	q.BackoffLeast, q.BackoffMost = least, most
}

// byteSize reads a number of bytes, such as 1000, 64KiB or 100MB.
func (p *Parser) byteSize(n *yamltext.Node, key string, low, high int64) (int64, bool) {
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		p.Errorf(n, "", "%q must be a size such as 100MB, not %s", key, n.Kind)
		return 0, false
	}
	v, err := parseBytes(n.Text)
	if err != nil {
		p.Errorf(n, "write a number of bytes, or one with a unit such as 64KiB or 100MB", "%q: %v", key, err)
		return 0, false
	}
	if v < low || v > high {
		p.Errorf(n, "", "%q must be from %d to %d bytes, not %s", key, low, high, n.Text)
		return 0, false
	}
	return v, true
}

func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	factor, known := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[text[len(digits):]]
	v, err := strconv.ParseUint(strings.ReplaceAll(digits, "_", ""), 10, 41)
	if !known || err != nil || strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, fmt.Errorf("%s is not a size", clip.Quote(text))
	}
	return int64(v) * factor, nil
}
