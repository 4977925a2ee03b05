package control

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate/store/redis"
)

// weighed is a row of another region's table that is newer than what this region has.
type weighed struct {
	merge redis.TableMerge
	entry *Entry
	// order means that it is a grant or a reset made there, which this region must carry
	// out too.
	order bool
}

// errUnread means that this region's own table cannot be read now.
var errUnread = errors.New("this region's bans and overrides cannot be read")

// own returns the state of this region's table, and the time by its clock. It fails if
// that was not read the last time.
func (m *Manager) own() (State, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known || m.failing || m.memory.table == nil {
		return State{}, time.Time{}, errUnread
	}
	return m.seen, m.options.Clock().Add(m.ahead), nil
}

// clocksApart is by how much the clocks of two regions' stores must differ for times to be
// moved: less is more likely the time that the answer took.
const clocksApart = 2 * time.Second

// weigh returns which rows of a region's table are newer than what this region has, and
// how many could not be read. now and there are the times by the clocks of both.
func (m *Manager) weigh(peer string, rows []Row, now, there time.Time) (newer []weighed, odd int) {
	by := now.Sub(there)
	if by.Abs() < clocksApart {
		by = 0
	}
	for i := range rows {
		r := rows[i]
		if r.Until = r.Until.Add(by); !r.Until.After(now) {
			continue // it is over
		}
		w, at, err := m.incoming(peer, &r, by)
		if err != nil {
			odd++
			continue
		}
		if w.onlyFor(at.From, peer, m.options.Region) || !m.isNewer(&w, at, r.Until) {
			continue
		}
		w.order = at.From == peer && (w.entry.Kind == Grant || w.entry.Kind == Reset)
		newer = append(newer, w)
	}
	return newer, odd
}

// incoming reads a row of another region, and moves its times.
func (m *Manager) incoming(peer string, r *Row, by time.Duration) (w weighed, at Stamp, err error) {
	at = Stamp{r.Version, peer}
	text := r.Value
	if r.Deleted {
		w.entry = &Entry{Kind: Ended, Key: r.Name}
		text, err = at.ended(r.Name)
	} else if w.entry, err = decode(r.Value); err == nil {
		if by != 0 && w.entry.Kind != Ended {
			text, err = moved(text, by)
		}
		if w.entry.Changed != (Stamp{}) {
			at = w.entry.Changed
		} else if err == nil {
			text, err = at.stamped(text)
		}
	}
	switch {
	case err != nil:
		return w, at, err
	case w.entry.name() != r.Name:
		return w, at, errNoEntry
	}
	w.merge = redis.TableMerge{Name: r.Name, Value: text, Above: at.At, Until: r.Until}
	return w, at, at.check()
}

// moved returns the text of an entry with other times. It keeps fields that this release
// does not know.
func moved(text string, by time.Duration) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return "", err
	}
	for _, name := range []string{"until", "created"} {
		var ms int64
		if err := json.Unmarshal(fields[name], &ms); err != nil {
			return "", err
		}
		fields[name] = strconv.AppendInt(nil, min(max(ms+by.Milliseconds(), 1), maxMilli), 10)
	}
	out, err := json.Marshal(fields)
	return string(out), err
}

// onlyFor reports whether the row is a grant or a reset that was made in a third region:
// those are only taken from there, since they are also carried out. This region's own
// grants may come back after it has lost them.
func (w *weighed) onlyFor(from, peer, here string) bool {
	switch w.entry.Kind {
	case Reset:
		return from != peer
	case Grant:
		return from != peer && from != here
	case Ban, Limit, Ended:
	}
	return false
}

// isNewer reports whether the row is newer than what this region has, and completes it.
func (m *Manager) isNewer(w *weighed, at Stamp, until time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.memory.rows[w.merge.Name]
	if !ok {
		return true
	}
	here := Stamp{r.Version, m.options.Region}
	if e, err := decode(r.Value); err == nil && e.Changed != (Stamp{}) {
		here = e.Changed
	}
	w.merge.Was = r.Version
	if w.entry.Kind != Ended && r.Until.After(until) {
		w.merge.Until = r.Until // regions that only know the longer one must find this one in its place
	}
	return at.compare(here) > 0
}
