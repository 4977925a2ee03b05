package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/rules"
)

// batch is a chunk of a log: a worker parses it, and the source passes it on in
// the order of the log.
type batch struct {
	chunk   accesslog.Chunk
	read    int64 // bytes of the file read so far
	err     error // set on the last batch of the log
	entries []entry
	skipped []Sample // the first few
	matching
	skips     int64
	lines     int64
	named     int64  // lines with the name of a host as the client
	name      string // one of them
	forwarded int64  // lines with X-Forwarded-For alone
	holds     int    // how many entries are in use
	done      chan struct{}
}

// work is a batch with the format of its log.
type work struct {
	*batch
	format accesslog.Format
}

// ahead limits how many batches of a log are in progress.
const ahead = 6

// source returns the entries of a log in time order.
type source struct {
	input   *input
	batches chan *batch // in the order of the log; closed at the end
	current *batch
	next    int

	order   order
	ended   bool
	problem error

	samples []Sample
}

// start starts reading an input.
func (r *reading) start(in *input) *source {
	s := &source{input: in, batches: make(chan *batch, ahead)}
	s.order.window = r.Reorder.Microseconds()
	r.group.Go(func() {
		defer close(s.batches)
		defer in.close()
		for {
			b := r.free()
			b.chunk, b.err = in.next(b.chunk.Space)
			b.read = in.read.Load()
			last := b.err != nil // after this b is the reader's
			select {
			case r.jobs <- work{b, in.format}:
			case <-r.ctx.Done():
				return
			}
			select {
			case s.batches <- b:
			case <-r.ctx.Done():
				return
			}
			if last {
				return
			}
		}
	})
	return s
}

// worker parses batches until there are no more.
func (r *reading) worker() {
	parsers := map[accesslog.Format]accesslog.Parser{}
	who := newAddresses(r.Clients)
	var m rules.Matches
	for {
		select {
		case w := <-r.jobs:
			parser := parsers[w.format]
			if parser == nil {
				parser = w.format.Parser(r.Zone)
				parsers[w.format] = parser
			}
			w.parse(parser, who)
			w.match(r.sides, r.logged, &m)
			close(w.done)
		case <-r.ctx.Done():
			return
		}
	}
}

// maxSamples limits how many unreadable lines are shown.
const maxSamples = 5

func (b *batch) skip(line int64, text string, why error) {
	b.skips++
	if len(b.skipped) < maxSamples {
		const most = 120
		if len(text) > most {
			text = text[:most] + "…"
		}
		b.skipped = append(b.skipped, Sample{Line: line, Text: strings.Clone(strings.ToValidUTF8(text, "\uFFFD")), Why: why.Error()})
	}
}

var errTooLong = errors.New("the line is longer than 1 MiB")

// parse reads the lines of a batch.
func (b *batch) parse(p accesslog.Parser, who *addresses) {
	b.lines = int64(len(b.chunk.TooLong))
	for _, line := range b.chunk.TooLong {
		b.skip(line, "", errTooLong)
	}
	line := b.chunk.First - 1
	for one := range strings.Lines(b.chunk.Text) {
		line++
		one = strings.TrimSuffix(strings.TrimSuffix(one, "\n"), "\r")
		if one == "" || one[0] == '#' {
			continue // an empty line or a comment
		}
		b.lines++
		e := b.room()
		if err := p.Parse(one, &e.Record); err != nil {
			b.entries = b.entries[:len(b.entries)-1]
			b.skip(line, one, err)
			continue
		}
		e.at = e.Time
		who.set(e)
		b.noteClient(e)
	}
}

// noteClient counts clients that are not known by the address of a peer.
func (b *batch) noteClient(e *entry) {
	switch {
	case e.OnlyForwarded:
		b.forwarded++
	case !e.address.IsValid() && e.Client != "":
		if b.named++; b.name == "" {
			b.name = strings.Clone(e.Client)
		}
	}
}

// room appends an entry, reusing memory.
func (b *batch) room() *entry {
	if n := len(b.entries); n < cap(b.entries) {
		b.entries = b.entries[:n+1]
		return &b.entries[n]
	}
	b.entries = append(b.entries, entry{})
	return &b.entries[len(b.entries)-1]
}

// fill moves entries from the log to the order until one can be returned.
func (s *source) fill(r *reading) {
	for !s.ended && !s.order.ready() {
		if s.current == nil && !s.nextBatch(r) {
			return
		}
		b := s.current
		for s.next < len(b.entries) && !s.order.ready() {
			s.order.push(item{entry: &b.entries[s.next], batch: b})
			s.next++
			for _, dropped := range s.order.dropped {
				s.drop(r, dropped)
			}
			s.order.dropped = s.order.dropped[:0]
		}
		if s.next == len(b.entries) {
			s.current, s.next = nil, 0
			last := b.err
			r.release(b) // the source's own hold
			if last != nil {
				s.end(last)
			}
		}
	}
}

// drop skips an entry whose time cannot be right.
func (s *source) drop(r *reading, it item) {
	s.input.report.Skipped++
	s.sample(Sample{Text: it.entry.Method + " " + it.entry.Path, Why: fmt.Sprintf(
		"the time %s is far ahead of the surrounding lines", time.UnixMicro(it.entry.Time).UTC().Format(time.RFC3339))})
	r.release(it.batch)
}

func (s *source) sample(one Sample) {
	if len(s.samples) < maxSamples {
		s.samples = append(s.samples, one)
	}
}

// nextBatch waits for the next batch.
func (s *source) nextBatch(r *reading) bool {
	var b *batch
	select {
	case b = <-s.batches:
	case <-r.ctx.Done():
	}
	if b != nil {
		select {
		case <-b.done:
		case <-r.ctx.Done():
			b = nil
		}
	}
	if b == nil {
		s.end(r.ctx.Err())
		return false
	}
	for _, one := range b.skipped {
		s.sample(one)
	}
	s.input.report.Skipped += b.skips
	s.input.report.Lines += b.lines
	s.input.report.HostNames += b.named
	s.input.report.HostName = cmp.Or(s.input.report.HostName, b.name)
	s.input.report.OnlyForwarded += b.forwarded
	b.holds = len(b.entries) + 1
	r.progress(b)
	s.current = b
	return true
}

func (s *source) end(err error) {
	s.ended = true
	if err != nil && !errors.Is(err, io.EOF) {
		s.problem = err
	}
	s.order.end()
}

// matching holds the rules that apply to the entries of a batch. Matching runs in
// the parsing goroutines; only the decisions must be sequential.
type matching struct {
	checks  []rules.Check
	keys    []byte
	keyText string // memory that the checks' keys point into
}

// applying locates the rules of one side that apply to an entry, in a matching.
type applying struct {
	from, to int
	known    bool
}

// match finds the rules of the sides that apply to each entry.
func (b *batch) match(sides []Side, logged *logged, m *rules.Matches) {
	for i := range b.entries {
		e := &b.entries[i]
		logged.note(e)
		for j := range sides {
			at := &e.applies[j]
			at.known = sides[j].Rules.Match(sides[j].Domain, e, m)
			at.from = len(b.checks)
			b.checks = append(b.checks, m.Checks...)
			at.to = len(b.checks)
			for k := range m.Checks {
				b.keys = append(b.keys, m.Checks[k].Key...)
				b.checks[at.from+k].Share = m.Checks[k].Share.Clone()
			}
		}
	}
	// The keys were in m's memory: only their lengths are still valid.
	b.keyText = string(b.keys)
	rest := b.keyText
	for i := range b.checks {
		n := len(b.checks[i].Key)
		b.checks[i].Key, rest = rest[:n], rest[n:]
	}
}

// matched returns the rules of a side that apply to an entry.
func (it item) matched(side int) engine.Matched {
	at := it.entry.applies[side]
	return engine.Matched{Known: at.known, Checks: it.batch.checks[at.from:at.to]}
}
