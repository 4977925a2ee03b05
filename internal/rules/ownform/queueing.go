package ownform

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
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

// queueKeys are the keys of on_limit for action: queue.
func (p *Parser) queueKeys(q *rules.Queueing) []form.Row {
	rows := []form.Row{
		{Key: "max_entries", Doc: "How many requests may wait; dead letters may take as much again.", Type: form.Integer(1, maxQueueEntries, &q.MaxEntries)},
		{Key: "max_bytes", Doc: "Their size together; dead letters may take as much again.", Type: form.Size(1, maxQueueBytes, &q.MaxBytes)},
		{Key: "max_body", Doc: "The largest body of a request.", Type: form.Size(0, maxQueueBody, &q.MaxBody)},
		{
			Key: "key_share", Doc: "The share of max_entries and max_bytes that one key may use, at least one request; everything in rules without a key.",
			Type: form.Type{Schema: `"type":"string","pattern":"^([1-9][0-9]?|100)%$"`, Default: "10%"}.By("`1%` to `100%`", func(n *yamltext.Node) { p.parseKeyShare(n, q) }),
		},
		{Key: "ttl", Doc: "How long a request may wait.", Type: form.Duration(time.Second, maxQueueTTL, &q.TTL, "")},
		{Key: "retries", Doc: "How often a request is tried again if the backend does not accept it.", Type: form.Integer(0, maxQueueRetries, &q.Retries)},
		{
			Key: "backoff", Doc: "The first and the longest wait before another try: it doubles, and half of it is random. A longer Retry-After of the backend wins, up to an hour.",
			Type: form.Type{Schema: `"type":"string","pattern":"^([0-9]+(\\.[0-9]*)?(us|µs|μs|ms|s|m|h))+(\\.\\.([0-9]+(\\.[0-9]*)?(us|µs|μs|ms|s|m|h))+)?$"`, Default: "1s..5m"}.
				By("`1s..5m`", func(n *yamltext.Node) { p.parseBackoff(n, q) }),
		},
		{Key: "concurrency", Doc: "How many requests of one key are sent at once. With more than 1, their order is not kept.", Type: form.Integer(1, maxQueueConcurrency, &q.Concurrency)},
		{Key: "timeout", Doc: "How long the backend may take.", Type: form.Duration(time.Millisecond, maxQueueTimeout, &q.Timeout, "")},
		{Key: "keep", Doc: "How long the outcome of a request can be looked up.", Type: form.Duration(0, maxQueueTTL, &q.Keep, "")},
		{Key: "keep_response", Doc: "How much of the backend's answer is kept with the outcome.", Type: form.Size(0, maxKeptResponse, &q.KeepResponse)},
	}
	for i := range rows {
		rows[i].Only = []string{rules.Queue.String()}
	}
	return rows
}

// makeQueue checks that the limit of r can queue, if its action is to.
func (p *Parser) makeQueue(at *yamltext.Node, q *rules.Queueing, r *rules.Rule) {
	if r.OnLimit.Action != rules.Queue {
		return
	}
	if r.Limit.Rule().Valid() && r.Limit.Rule().CountRefused {
		p.Errorf(at, "remove one of them", "action: queue does not work with count_denied: queued requests would keep using up the limit")
	}
	if r.Concurrent() {
		p.Errorf(at, "limit the rate instead", "action: queue does not work with concurrency: the time until a slot is free is unknown")
	}
	r.OnLimit.Queueing = q
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
	least, err := form.ParseDuration(first, time.Millisecond, maxQueueBackoff)
	most := least
	if err == nil && two {
		most, err = form.ParseDuration(last, least, maxQueueBackoff)
	}
	if err != nil {
		p.Errorf(n, "for example 1s..5m", "\"backoff\": %v", err)
		return
	}
	q.BackoffLeast, q.BackoffMost = least, most
}
