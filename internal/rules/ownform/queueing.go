package ownform

import (
	"fmt"
	"math"
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

// parseQueueing reads those keys of on_limit; f may be nil.
func (p *Parser) parseQueueing(at *yamltext.Node, f yamltext.Fields, r *rules.Rule) {
	if r.OnLimit.Action != rules.Queue {
		return
	}
	if r.Limit.Valid() && r.Limit.Rule().CountDenied {
		p.Errorf(at, "remove one of them", "action: queue does not work with count_denied: queued requests would keep using up the limit")
	}
	if r.Concurrent() {
		p.Errorf(at, "limit the rate instead", "action: queue does not work with concurrency: the time until a slot is free is unknown")
	}
	q := rules.DefaultQueueing()
	retries, concurrency := int64(q.Retries), int64(q.Concurrency)
	p.IntegerOf(f, "max_entries", 1, maxQueueEntries, &q.MaxEntries)
	p.bytesOf(f, "max_bytes", 1, maxQueueBytes, &q.MaxBytes)
	p.bytesOf(f, "max_body", 0, maxQueueBody, &q.MaxBody)
	if n := f.Get("key_share"); n != nil {
		p.parseKeyShare(n, &q)
	}
	p.durationOf(f, "ttl", time.Second, maxQueueTTL, &q.TTL)
	p.IntegerOf(f, "retries", 0, maxQueueRetries, &retries)
	if n := f.Get("backoff"); n != nil {
		p.parseBackoff(n, &q)
	}
	p.IntegerOf(f, "concurrency", 1, maxQueueConcurrency, &concurrency)
	p.durationOf(f, "timeout", time.Millisecond, maxQueueTimeout, &q.Timeout)
	p.durationOf(f, "keep", 0, maxQueueTTL, &q.Keep)
	p.bytesOf(f, "keep_response", 0, maxKeptResponse, &q.KeepResponse)
	q.Retries, q.Concurrency = int(retries), int(concurrency)
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

// parseBackoff reads one duration, or two separated by .. .
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

// bytesOf reads the number of bytes under a key, such as 1000, 64KiB or 100MB.
func (p *Parser) bytesOf(f yamltext.Fields, key string, low, high int64, v *int64) {
	n := f.Get(key)
	if n == nil {
		return
	}
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		p.Errorf(n, "", "%q must be a size such as 100MB, not %s", key, n.Kind)
		return
	}
	switch size, err := parseBytes(n.Text); {
	case err != nil:
		p.Errorf(n, "write a number of bytes, or use a unit, such as 64KiB or 100MB", "%q: %v", key, err)
	case size < low || size > high:
		p.Errorf(n, "", "%q must be from %d to %d bytes, not %s", key, low, high, n.Text)
	default:
		*v = size
	}
}

func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	factor, known := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[text[len(digits):]]
	v, err := strconv.ParseUint(strings.ReplaceAll(digits, "_", ""), 10, 41)
	if !known || err != nil || strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, fmt.Errorf("invalid size %s", clip.Quote(text))
	}
	if v > uint64(math.MaxInt64/factor) {
		return math.MaxInt64, nil // more than any limit
	}
	return int64(v) * factor, nil
}
