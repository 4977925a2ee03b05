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
	// Open opens the log at its start. Unless Once is set it is called several
	// times.
	Open func() (io.ReadCloser, error)
	Once bool  // the log can be opened only once, like standard input
	Size int64 // of the file in bytes, or 0 if unknown
}

// Reading is how logs are read.
type Reading struct {
	Logs   []Log
	Format accesslog.Format // of all logs; nil detects it for each
	// Clients finds the client's address and groups addresses. Required.
	Clients  *client.Resolver
	Zone     *time.Location  // of times without one; nil is UTC
	Reorder  time.Duration   // how far out of order lines may be
	Told     func(LogReport) // Told, if not nil, is called for each log once its format is known
	Progress func(Progress)  // Progress, if not nil, is called from time to time
}

// Progress is the progress of a simulation.
type Progress struct {
	// Lines and Bytes have been read so far. Total is the size of the files, or 0
	// if unknown.
	Lines, Bytes, Total int64
}

// Sample is a line that could not be read.
type Sample struct {
	File string `json:"file"`
	Line int64  `json:"line,omitempty"`
	Text string `json:"text"`
	Why  string `json:"why"`
}

// LogReport says what was read from a log.
type LogReport struct {
	Name        string `json:"name"`
	Format      string `json:"format"`
	Detected    bool   `json:"detected"`
	Compression string `json:"compression,omitempty"`
	Lines       int64  `json:"lines"`
	Skipped     int64  `json:"skipped"`
	Late        int64  `json:"late,omitempty"` // how many lines were out of order by more than Reorder
	// HostNames counts the lines that have the name of a host in place of the
	// client's address, such as HostName.
	HostNames int64  `json:"host_names,omitempty"`
	HostName  string `json:"host_name,omitempty"`
	// OnlyForwarded counts the lines that have X-Forwarded-For but no address of
	// the peer. They are counted by its last element.
	OnlyForwarded int64  `json:"only_forwarded,omitempty"`
	Problem       string `json:"problem,omitempty"` // why the rest could not be read
}

// LogError is a log that cannot be read at all.
type LogError struct {
	Name string
	Err  error
	Hint string
}

// Error returns "name: what is wrong".
func (e *LogError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns e.Err.
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
	pushed func() (accesslog.Chunk, error) // what was read to detect the format, if not nil
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

// interrupt ends a read that may block for ever, as on standard input. The reader
// may be in use by other goroutines, so it is not closed.
func (in *input) interrupt() {
	if in.Once && in.file != nil {
		_ = in.file.Close() // close may close it again
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

// probe reads the start of the log to detect its format and first time.
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
		in.format, err = accesslog.New("common", nil) // any format will do
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
	if in.first == math.MaxInt64 { // unknown: read it first
		in.first = math.MinInt64
	}
	return nil
}

// choose sets the format: the one given, or the one detected.
func (in *input) choose(given accesslog.Format, sample []string) error {
	if given == nil {
		f, err := accesslog.Detect(sample)
		if err != nil {
			return &LogError{
				Name: in.Name, Err: err,
				Hint: "set --format: the text of the format, the path of an nginx.conf, or one of " + strings.Join(accesslog.Names(), ", ") +
					"; for other JSON lines name the keys, as in --map client_ip=ip,path=url,time=when",
			}
		}
		in.format = f
		return nil
	}
	in.format = given
	if accesslog.Fits(given, sample) > 0 {
		return nil
	}
	if f := accesslog.Unwrap(given, sample); f != nil {
		in.format = f
		return nil
	}
	var record accesslog.Record
	hint := ""
	if f, err := accesslog.Detect(sample); err == nil && slices.Contains(accesslog.Names(), f.Name()) {
		hint = fmt.Sprintf("it looks like the format %s: omit --format, or use --format %s", f.Name(), f.Name())
	}
	err := given.Parser(nil).Parse(sample[0], &record)
	if err == nil {
		return nil
	}
	return &LogError{
		Name: in.Name, Hint: hint,
		Err: fmt.Errorf("none of the first %d lines has the format %s; the first: %w", len(sample), given.Name(), err),
	}
}

// reading is a Reading in progress.
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

// free returns a batch, reusing memory.
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

// maxSpace limits the memory that is kept for reuse, in bytes.
const maxSpace = 1 << 18

// release drops one hold on a batch.
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

// outcome is the result of reading.
type outcome struct {
	logs    []LogReport
	logged  *logged
	samples []Sample
}

// read reads all logs, matches their entries with the rules of the sides, and
// calls visit for each in time order. An item is valid until visit returns.
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

// probeAll probes every log and sorts them by their first time.
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

// merge returns the entries of several logs in time order. It opens a log only
// when its first time is reached, so that few of many rotated files are open.
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

// finish records the report of a log.
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

// outcome returns what has been read, including logs not read to the end.
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
