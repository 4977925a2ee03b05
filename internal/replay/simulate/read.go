package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/request/client"
)

// Log is one access log, perhaps compressed.
type Log struct {
	Name string // what messages call it
	// Open opens it at its beginning. Unless Once is set it is called several
	// times.
	Open func() (io.ReadCloser, error)
	Once bool  // it can be opened only once, as standard input
	Size int64 // that of the file in bytes, or 0 if it is not known
}

// Reading says how logs are read.
type Reading struct {
	Logs   []Log
	Format accesslog.Format // that of all logs; nil finds it out for each
	// Clients says whom to believe about the client's address, and how
	// addresses are grouped. Required.
	Clients  *client.Resolver
	Zone     *time.Location  // that of times that do not say theirs; nil is UTC
	Reorder  time.Duration   // how much earlier than a line before it a line may be
	Told     func(LogReport) // Told, if not nil, is called for each log once its format is known
	Progress func(Progress)  // Progress, if not nil, is called now and then
}

// Progress is how far a simulation has come.
type Progress struct {
	// Lines are those read so far, Bytes what has been read of the files, and
	// Total their size, or 0 if that is not known.
	Lines, Bytes, Total int64
}

// Sample is a line that could not be read.
type Sample struct {
	File string `json:"file"`
	Line int64  `json:"line,omitempty"`
	Text string `json:"text"`
	Why  string `json:"why"`
}

// LogReport is what was read of a log.
type LogReport struct {
	Name        string `json:"name"`
	Format      string `json:"format"`
	Detected    bool   `json:"detected"`
	Compression string `json:"compression,omitempty"`
	Lines       int64  `json:"lines"`
	Skipped     int64  `json:"skipped"`
	Late        int64  `json:"late,omitempty"`    // how many lines were out of order by more than Reorder
	Problem     string `json:"problem,omitempty"` // why the rest could not be read
}

// LogError is a log that cannot be read at all.
type LogError struct {
	Name string
	Err  error
	Hint string
}

// Error returns "name: what is wrong".
func (e *LogError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the error beneath.
func (e *LogError) Unwrap() error { return e.Err }

// input is a log that is being read.
type input struct {
	Log
	report LogReport
	format accesslog.Format
	first  int64 // the time of the first line, in microseconds
	reader *accesslog.Reader
	file   io.Closer
	read   *atomic.Int64
	pushed func() (accesslog.Chunk, error) // what was read to find out the format, if not nil
}

// counter counts what is read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (in *input) open() error {
	if in.reader != nil {
		return nil
	}
	file, err := in.Open()
	if err != nil {
		return err
	}
	in.read = new(atomic.Int64)
	reader, err := accesslog.NewReader(counter{file, in.read})
	if err != nil {
		_ = file.Close()
		return &LogError{Name: in.Name, Err: err}
	}
	in.reader, in.file = reader, file
	return nil
}

func (in *input) close() {
	if in.reader != nil {
		in.reader.Close()
		_ = in.file.Close() // it was only read
		in.reader = nil
	}
}

// interrupt ends a read that may wait for ever, as one of standard input. Others
// may be at work with the reader, so that is left alone.
func (in *input) interrupt() {
	if in.Once && in.file != nil {
		_ = in.file.Close() // close does it again, if it is still to be done
	}
}

// next returns the next chunk, which may be in the memory of space.
func (in *input) next(space []byte) (accesslog.Chunk, error) {
	if pushed := in.pushed; pushed != nil {
		in.pushed = nil
		return pushed()
	}
	return in.reader.Next(space)
}

// probe reads the beginning of the log, to find out its format and when it
// begins.
func (in *input) probe(r *Reading) error {
	if err := in.open(); err != nil {
		return err
	}
	chunk, err := in.reader.Next(nil)
	in.report = LogReport{Name: in.Name, Compression: in.reader.Compression, Detected: r.Format == nil}
	if in.Once {
		first := err
		in.pushed = func() (accesslog.Chunk, error) { return chunk, first }
	} else {
		in.close()
	}
	if err != nil && !errors.Is(err, io.EOF) && chunk.Text == "" {
		return &LogError{Name: in.Name, Err: err}
	}
	var sample []string
	for line := range strings.Lines(chunk.Text) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != '#' && len(sample) < 1000 {
			sample = append(sample, line)
		}
	}
	in.first = math.MaxInt64
	if len(sample) == 0 && len(chunk.TooLong) == 0 {
		in.report.Format = "empty"
		in.format, err = accesslog.New("common", nil) // of no line
		return err
	}
	if err := in.choose(r.Format, sample); err != nil {
		return err
	}
	in.report.Format = in.format.Name()
	p := in.format.Parser(r.Zone)
	var record accesslog.Record
	for _, line := range sample {
		if p.Parse(line, &record) == nil {
			in.first = min(in.first, record.Time)
		}
	}
	if in.first == math.MaxInt64 { // read it at once
		in.first = math.MinInt64
	}
	return nil
}

// choose sets the format: the one given, or the one that the lines are of.
func (in *input) choose(given accesslog.Format, sample []string) error {
	if given == nil {
		f, err := accesslog.Detect(sample)
		if err != nil {
			return &LogError{
				Name: in.Name, Err: err,
				Hint: "give the format by --format: its text, the path of an nginx.conf that has it, or one of " + strings.Join(accesslog.Names(), ", "),
			}
		}
		in.format = f
		return nil
	}
	in.format = given
	if accesslog.Fits(given, sample) > 0 {
		return nil
	}
	var record accesslog.Record
	hint := ""
	if f, err := accesslog.Detect(sample); err == nil {
		hint = fmt.Sprintf("it looks like the format %s: leave --format out, or say --format %s", f.Name(), f.Name())
	}
	err := given.Parser(nil).Parse(sample[0], &record)
	if err == nil {
		return nil
	}
	return &LogError{
		Name: in.Name, Hint: hint,
		Err: fmt.Errorf("of the first %d lines none is of the format %s; the first: %w", len(sample), given.Name(), err),
	}
}

// reading is a Reading under way.
type reading struct {
	Reading
	ctx    context.Context
	sides  []Side
	logged *logged
	group  sync.WaitGroup
	jobs   chan work
	unused sync.Pool // of *batch
	lines  int64
	passed int64 // bytes of logs that have been read to their end
	total  int64
}

// free returns a batch, with the memory of one that is not used any more.
func (r *reading) free() *batch {
	b, ok := r.unused.Get().(*batch)
	if !ok {
		b = new(batch)
	}
	*b = batch{
		chunk:   accesslog.Chunk{Space: b.chunk.Space},
		entries: b.entries[:0], skipped: b.skipped[:0], done: make(chan struct{}),
		matching: matching{checks: b.checks[:0], keys: b.keys[:0]},
	}
	return b
}

// maxSpace bounds the memory that is kept for the text of other batches.
const maxSpace = 1 << 18

// release lets go of one hold on a batch.
func (r *reading) release(b *batch) {
	if b.holds--; b.holds > 0 {
		return
	}
	b.keyText = ""
	if b.chunk.Text = ""; cap(b.chunk.Space) > maxSpace {
		b.chunk.Space = nil
	}
	r.unused.Put(b)
}

func (r *reading) progress(b *batch) {
	r.lines += b.lines
	if r.Progress != nil {
		r.Progress(Progress{Lines: r.lines, Bytes: r.passed + b.read, Total: r.total})
	}
	if b.err != nil {
		r.passed += b.read
	}
}

// outcome is what reading has come to.
type outcome struct {
	logs    []LogReport
	logged  *logged
	samples []Sample
}

// read reads all logs, matches them with the rules of the sides, and hands
// their entries to visit, in the order of time. An item is good until visit
// returns.
func (o *Reading) read(ctx context.Context, sides []Side, visit func(at int64, it item) error) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{Reading: *o, ctx: ctx, sides: sides, logged: newLogged(sides), jobs: make(chan work)}
	inputs, err := r.probeAll()
	defer func() {
		cancel()
		for _, in := range inputs {
			in.interrupt()
		}
		r.group.Wait()
		for _, in := range inputs {
			in.close()
		}
	}()
	if err != nil {
		return outcome{}, err
	}
	for range max(1, runtime.GOMAXPROCS(0)) {
		r.group.Go(r.worker)
	}
	m := merge{reading: r, waiting: inputs}
	var now int64 = math.MinInt64
	for {
		s, err := m.next()
		if s == nil || err != nil {
			return m.outcome(), err
		}
		it := s.order.first()
		now = max(now, it.entry.at)
		if err := visit(now, it); err != nil {
			return m.outcome(), err
		}
		s.order.pop()
		r.release(it.batch)
	}
}

// probeAll probes every log and sorts them by when they begin.
func (r *reading) probeAll() ([]*input, error) {
	var inputs []*input
	var problems []error
	for _, l := range r.Logs {
		in := &input{Log: l}
		if err := in.probe(&r.Reading); err != nil {
			problems = append(problems, err)
			in.close()
			continue
		}
		if r.Told != nil {
			r.Told(in.report)
		}
		inputs = append(inputs, in)
		if r.total += l.Size; l.Size == 0 {
			r.total = math.MinInt64 / 2
		}
	}
	r.total = max(r.total, 0)
	slices.SortStableFunc(inputs, func(a, b *input) int { return cmp.Compare(a.first, b.first) })
	return inputs, errors.Join(problems...)
}

// merge takes from several logs the earliest entry. A log is opened only when
// its time has come, so that of a year of rotated files a few are open.
type merge struct {
	*reading
	waiting []*input
	active  []*source
	out     outcome
}

// next returns the log that has the earliest entry, or nil at the end.
func (m *merge) next() (*source, error) {
	for {
		if err := m.ctx.Err(); err != nil {
			return nil, err
		}
		best := (*source)(nil)
		for i := 0; i < len(m.active); i++ {
			s := m.active[i]
			if !s.order.ready() {
				s.fill(m.reading)
			}
			if s.order.held() == 0 {
				m.finish(s)
				m.active = slices.Delete(m.active, i, i+1)
				i--
				continue
			}
			if best == nil || s.order.first().entry.at < best.order.first().entry.at {
				best = s
			}
		}
		if len(m.waiting) == 0 || best != nil && m.waiting[0].first > best.order.first().entry.at+m.Reorder.Microseconds() {
			return best, nil
		}
		in := m.waiting[0]
		m.waiting = m.waiting[1:]
		if err := in.open(); err != nil {
			return nil, err
		}
		m.active = append(m.active, m.start(in))
	}
}

// finish notes what a log has come to.
func (m *merge) finish(s *source) {
	report := s.input.report
	report.Late = s.order.late
	if s.problem != nil {
		report.Problem = s.problem.Error()
	}
	for _, one := range s.samples {
		if one.File = s.input.Name; len(m.out.samples) < maxSamples {
			m.out.samples = append(m.out.samples, one)
		}
	}
	m.out.logs = append(m.out.logs, report)
}

// outcome is what has been read, also of logs that were not read to the end.
func (m *merge) outcome() outcome {
	for _, s := range m.active {
		m.finish(s)
	}
	m.active, m.out.logged = nil, m.logged
	return m.out
}

// Visit reads logs and hands the time of each request, in microseconds, and
// what its client is counted by to visit, in the order of time.
func Visit(ctx context.Context, o Reading, visit func(at int64, client string)) error {
	_, err := o.read(ctx, nil, func(at int64, it item) error {
		visit(at, strings.Clone(it.entry.group))
		return nil
	})
	return err
}
