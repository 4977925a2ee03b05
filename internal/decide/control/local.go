package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/atomicfile"
)

// Local is the table of a process that does not share its store. With a file, every
// change is written to it before the call returns.
type Local struct {
	mu      sync.Mutex
	clock   func() time.Time
	rows    map[string]localRow
	version int64
	tidied  time.Time

	path   string // empty without a file
	saving sync.Mutex
	saved  int64
}

// localRow is a row and when it ends or was deleted.
type localRow struct {
	Row
	until, deleted time.Time
}

// remembered is how long deletions are reported.
const remembered = 10 * time.Minute

// tidyEvery is how often expired rows are removed.
const tidyEvery = time.Second

// NewLocal returns an empty table that uses clock.
func NewLocal(clock func() time.Time) *Local {
	return &Local{clock: clock, rows: map[string]localRow{}}
}

// ErrDamaged is wrapped by the error of [OpenLocal] if the file is not a complete
// table.
var ErrDamaged = errors.New("damaged table")

// OpenLocal returns a table with the content of the file at path, if it exists, and
// saves changes to that file. What cannot be saved is saved with the next change, or by
// [Local.Save]. With an error that wraps ErrDamaged it returns a table of
// the entries that are whole; the next change or [Local.Save] replaces the file.
func OpenLocal(path string, clock func() time.Time) (*Local, error) {
	l := NewLocal(clock)
	l.path = path
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return nil, err
	}
	if err := l.load(text); err != nil {
		return l, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	l.saved = l.version
	return l, nil
}

// A file has a header line with its version and the CRC-32C of the rest, followed by
// the entries, one per line, as their CRC-32C and JSON, so that a damaged byte costs one
// entry. Version 1, which is only read, has no CRC-32C of the entries.
const (
	header    = "headgate control 2 %08x\n"
	oldHeader = "headgate control 1 %08x\n"
	prefix    = "%08x "
	prefixLen = len("01234567 ")
)

// checksum returns the CRC-32C of text.
func checksum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }

// load reads all entries that are whole. The error says if there may have been others.
func (l *Local) load(text []byte) error {
	end := bytes.IndexByte(text, '\n') + 1
	first, rest := string(text[:end]), text[end:]
	if first == fmt.Sprintf(oldHeader, checksum(rest)) {
		for line := range bytes.Lines(rest) {
			if err := l.loadEntry(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		return nil
	}
	lines, whole := 0, 0
	for line := range bytes.Lines(rest) {
		lines++
		line = bytes.TrimSuffix(line, []byte("\n"))
		if entry := line[min(prefixLen, len(line)):]; string(line) != fmt.Sprintf(prefix, checksum(entry))+string(entry) {
			continue
		} else if err := l.loadEntry(entry); err == nil {
			whole++
		}
	}
	if want := fmt.Sprintf(header, checksum(rest)); first != want {
		return fmt.Errorf("it starts with %.40q, want %q; %d of its %d lines are whole", first, want, whole, lines)
	} else if whole < lines {
		return fmt.Errorf("%d of its %d lines are not readable", lines-whole, lines)
	}
	return nil
}

// loadEntry adds an entry in JSON.
func (l *Local) loadEntry(text []byte) error {
	e, err := decode(string(text))
	if err == nil {
		l.set(localRow{Row: Row{Name: e.name(), Value: string(text)}, until: e.Until})
	}
	return err
}

// Look implements [Table].
func (l *Local) Look(context.Context) (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{Version: l.version}, nil
}

// Since implements [Table].
func (l *Local) Since(_ context.Context, version int64, most int) (rows []Row, now int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rows {
		if r.Version > version {
			rows = append(rows, r.Row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Version, b.Version) })
	return rows[:min(most, len(rows))], l.version, nil
}

// Put implements [Table].
func (l *Local) Put(_ context.Context, r Row, most int) error {
	l.mu.Lock()
	l.tidy()
	old, was := l.rows[r.Name]
	if (!was || old.Deleted || !old.until.After(l.clock())) && len(l.rows) >= most && l.live() >= most {
		l.mu.Unlock()
		return ErrFull
	}
	l.set(localRow{Row: Row{Name: r.Name, Value: r.Value}, until: r.Until})
	l.mu.Unlock()
	return l.save()
}

// PutAll implements [Bulk].
func (l *Local) PutAll(_ context.Context, rows []Row, most int) error {
	l.mu.Lock()
	l.tidy()
	added, now := 0, l.clock()
	for _, r := range rows {
		if old, was := l.rows[r.Name]; !was || old.Deleted || !old.until.After(now) {
			added++
		}
	}
	if l.live()+added > most {
		l.mu.Unlock()
		return ErrFull
	}
	for _, r := range rows {
		l.set(localRow{Row: Row{Name: r.Name, Value: r.Value}, until: r.Until})
	}
	l.mu.Unlock()
	return l.save()
}

// Delete implements [Table].
func (l *Local) Delete(_ context.Context, r Row, _ int) (bool, error) {
	l.mu.Lock()
	old, was := l.rows[r.Name]
	if !was || old.Deleted {
		l.mu.Unlock()
		return false, nil
	}
	l.set(localRow{Row: Row{Name: r.Name, Deleted: true}, deleted: l.clock()})
	l.mu.Unlock()
	return true, l.save()
}

// Touch implements [Table].
func (l *Local) Touch(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	return nil
}

// set, tidy and live require l.mu to be held.
func (l *Local) set(r localRow) {
	l.version++
	r.Version = l.version
	l.rows[r.Name] = r
}

func (l *Local) live() (n int) {
	now := l.clock()
	for _, r := range l.rows {
		if !r.Deleted && r.until.After(now) {
			n++
		}
	}
	return n
}

// tidy removes expired rows after a delay, so that readers notice that they expired.
func (l *Local) tidy() {
	now := l.clock()
	if now.Sub(l.tidied).Abs() < tidyEvery {
		return
	}
	l.tidied = now
	for name, r := range l.rows {
		if r.Deleted && now.Sub(r.deleted) > remembered || !r.Deleted && now.Sub(r.until) > afresh {
			delete(l.rows, name)
		}
	}
}

// Save writes the file, if there is one and it lacks changes.
func (l *Local) Save() error { return l.save() }

// Len returns how many entries there are, including those that have expired.
func (l *Local) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows)
}

// save writes the file. One of several concurrent callers writes for all.
func (l *Local) save() error {
	if l.path == "" {
		return nil
	}
	l.mu.Lock()
	wanted := l.version
	l.mu.Unlock()
	l.saving.Lock()
	defer l.saving.Unlock()
	if l.saved >= wanted {
		return nil
	}
	var body bytes.Buffer
	l.mu.Lock()
	wanted = l.version
	for _, r := range l.rows {
		if !r.Deleted {
			fmt.Fprintf(&body, prefix+"%s\n", checksum([]byte(r.Value)), r.Value)
		}
	}
	l.mu.Unlock()
	text := append(fmt.Appendf(nil, header, checksum(body.Bytes())), body.Bytes()...)
	if err := atomicfile.Write(l.path, text); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	l.saved = wanted
	return nil
}
