package control

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/redis"
)

// Row is one row of a Table, as in store/redis. Rows are ordered by version, and
// versions are unique.
type Row = redis.TableRow

// State identifies a Table and its version. Now is zero if the table uses the clock of
// its Manager.
type State = redis.TableState

// Table holds the entries for all processes that share it.
type Table interface {
	// Look returns the state.
	Look(ctx context.Context) (State, error)
	// Since returns up to most rows changed after version, oldest change first, and the
	// current version.
	Since(ctx context.Context, version int64, most int) (rows []Row, now int64, err error)
	// Put writes a row. It returns ErrFull if there are already most rows. The row's
	// Version is the latest version of the table that the caller has seen.
	Put(ctx context.Context, r Row, most int) error
	// Delete deletes a row and reports whether it existed. Version is as in Put; a
	// non-empty Value means that the caller knows that the row exists.
	Delete(ctx context.Context, r Row, most int) (bool, error)
	// Touch only changes the version.
	Touch(ctx context.Context) error
}

// Forgetful is a Table that may lose data.
type Forgetful interface {
	Table
	// Restore writes back lost rows with their versions, unless the table has something
	// newer, and returns how many it accepted.
	Restore(ctx context.Context, rows []Row) (taken int, err error)
}

var (
	// ErrFull is returned by Put when there are already MaxEntries entries.
	ErrFull = errors.New("too many bans and overrides")
	// ErrNotSaved means that a change is active, but will not survive the process unless a
	// later save succeeds.
	ErrNotSaved = errors.New("not saved")
)

// Limits of a table.
const (
	MaxEntries   = 100_000     // the largest number of entries, unless set in Options
	PollInterval = time.Second // how often to call Sync if other processes may change the table
	// afresh is how often everything is read again, whatever the versions say: a
	// replica that has become primary may have lost changes, and newer changes may hide
	// that.
	afresh = time.Minute
	page   = 1000 // rows per request
)

// Options configure a Manager. All but Most, Changed, Reset, Forgot and Evicted are
// required.
type Options struct {
	Table   Table
	Engine  *engine.Engine // receives the snapshots
	Clock   func() time.Time
	Logger  *slog.Logger
	Changed func() // called after every change by any process; may be nil
	// Reset, if not nil, is called for every key that a process has reset, at least once.
	// It must be fast.
	Reset func(scope, key string)
	// Forgot, if not nil, is called when the table has lost data, and again with every
	// Sync until it succeeds.
	Forgot func(ctx context.Context) error
	// Evicted, if not nil, reports whether the table was lost because the store evicts keys:
	// then the loss of the table says nothing about other data.
	Evicted func(ctx context.Context) bool
	Most    int // the largest number of entries; 0 means MaxEntries
	// Region is the name of this region, if there are several; see Follower.
	Region string
}

// Manager is one process's view of the table. It is safe for concurrent use.
type Manager struct {
	options Options

	mu      sync.Mutex
	entries map[string]*Entry // by name
	rules   *rules.Ruleset
	seen    State         // the state of the table that entries corresponds to
	ahead   time.Duration // how far the table's clock is ahead of ours; see tick
	ticked  bool          // whether ahead has been measured
	known   bool          // whether seen is valid
	full    time.Time
	memory  memory
	// The snapshot in the engine, and where entries have changed since: at these
	// places, or anywhere.
	snapshot *engine.Exceptions
	changed  map[place]bool
	anywhere bool
	failing  bool
	odd      map[string]bool // rows that a warning was logged about
	settled  []Row           // see settle
}

// place is the position of a ban and a limit.
type place struct{ scope, key string }

// mostPlaces is the number of changed places at which the whole snapshot is rebuilt.
const mostPlaces = 1000

// New returns a Manager that has not read anything yet; see [Manager.Sync].
func New(o Options) *Manager {
	o.Most = cmp.Or(o.Most, MaxEntries)
	m := &Manager{options: o, entries: map[string]*Entry{}, odd: map[string]bool{}, changed: map[place]bool{}, rules: o.Engine.Rules()}
	m.memory.table, _ = o.Table.(Forgetful)
	return m
}

// SetRules announces rules that are about to become active.
func (m *Manager) SetRules(rs *rules.Ruleset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rules, m.anywhere = rs, true
	m.publish()
}

// Sync reads changes and activates them. If that fails, the last known entries stay
// active, and the failure is logged once.
func (m *Manager) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, err := m.read(ctx)
	m.writeSettled(ctx)
	if err == nil || errors.Is(err, errNotGiven) {
		m.tellLoss(ctx)
	}
	switch {
	case errors.Is(err, errNotGiven): // already logged
	case err != nil && !m.failing && ctx.Err() == nil:
		m.options.Logger.Warn("cannot read bans and overrides, the last known ones stay active", "err", err)
	case err == nil && m.failing:
		m.options.Logger.Info("bans and overrides can be read again", "entries", len(m.entries))
	}
	m.failing = err != nil
	if changed {
		m.publish()
		if m.options.Changed != nil {
			m.options.Changed()
		}
	}
	return err
}

// read reads the table if its state has changed.
func (m *Manager) read(ctx context.Context) (changed bool, err error) {
	before := m.options.Clock()
	state, err := m.options.Table.Look(ctx)
	if err != nil {
		return false, err
	}
	now := m.options.Clock()
	m.tick(before, state.Now, now)
	whole := !m.known || m.failing || now.Sub(m.full) >= afresh || now.Before(m.full) ||
		state.Identity != m.seen.Identity || state.Generation != m.seen.Generation || state.Version < m.seen.Version
	switch {
	case whole:
		return m.readAll(ctx, state, now)
	case state.Version == m.seen.Version:
		m.memory.touched = now
		return false, nil
	}
	return m.readOn(ctx, state, now)
}

// readOn reads the changes since the last read.
func (m *Manager) readOn(ctx context.Context, state State, now time.Time) (changed bool, err error) {
	state.Version, err = m.pages(ctx, m.seen.Version, func(r *Row) {
		m.take(m.entries, r, now)
		m.receive(m.memory.rows, r)
		changed = true
	})
	if err != nil {
		// The part that was read is valid, but not up to date.
		m.known = false
		return changed, err
	}
	changed = changed || state.Version != m.seen.Version
	m.seen, m.memory.touched = state, now
	return changed, nil
}

// readAll reads everything, and writes back missing rows.
func (m *Manager) readAll(ctx context.Context, state State, now time.Time) (changed bool, err error) {
	into, rows := map[string]*Entry{}, map[string]Row{}
	state.Version, err = m.pages(ctx, 0, func(r *Row) {
		m.take(into, r, now)
		m.receive(rows, r)
	})
	if err != nil {
		m.known = false
		return false, err
	}
	err = m.restore(ctx, &state, rows, now, func(r *Row) { m.take(into, r, now) })
	changed = state.Version != m.seen.Version
	if !maps.EqualFunc(into, m.entries, func(x, y *Entry) bool { return *x == *y }) {
		changed, m.anywhere = true, true
	}
	m.entries, m.seen, m.known, m.full = into, state, true, now
	m.memory.rows, m.memory.touched = rows, now
	return changed, err
}

// pages calls each for all rows after a version, and returns the table's version.
func (m *Manager) pages(ctx context.Context, since int64, each func(*Row)) (version int64, err error) {
	for {
		rows, at, err := m.options.Table.Since(ctx, since, page)
		if err != nil {
			return 0, err
		}
		for i := range rows {
			each(&rows[i])
			since = rows[i].Version
		}
		if len(rows) < page {
			return at, nil
		}
	}
}

// take adds a row to entries, unless it has ended.
func (m *Manager) take(into map[string]*Entry, r *Row, now time.Time) {
	if old := into[r.Name]; old != nil && old.Kind != Grant {
		m.changed[place{old.Scope, old.Key}] = true
	}
	if r.Deleted {
		delete(into, r.Name)
		return
	}
	e, err := decode(r.Value)
	if err == nil && e.name() != r.Name {
		err = errors.New("it is stored under the name of another")
	}
	if err != nil {
		delete(into, r.Name)
		if !m.odd[r.Name] && len(m.odd) < page {
			m.odd[r.Name] = true
			m.options.Logger.Warn("ignored a ban or override that cannot be read", "err", err)
		}
		return
	}
	switch e.Kind {
	case Reset:
		m.hearReset(r, e)
		return
	case Ended:
		delete(into, r.Name)
		return
	case Ban, Limit:
		m.settle(r, e, now)
	case Grant: // the record of a credit, which stays as it is
	}
	*e = e.shifted(-m.ahead)
	if !e.Until.After(now) {
		delete(into, r.Name)
		return
	}
	into[r.Name] = e
	if e.Kind != Grant {
		m.changed[place{e.Scope, e.Key}] = true
	}
}

// publish puts changes into the engine.
func (m *Manager) publish() {
	now := m.options.Clock()
	places, all := m.changed, m.anywhere || m.snapshot.Newer()+len(m.changed) > mostPlaces
	if all {
		places = m.allPlaces(now)
	}
	memo := map[insteadID][]engine.Instead{}
	list := make([]engine.Exception, 0, len(places))
	for p := range places {
		list = append(list, m.exception(memo, p))
	}
	switch {
	case all:
		m.snapshot = engine.NewExceptions(list, now.UnixMicro())
	case len(list) > 0:
		m.snapshot = m.snapshot.With(list, now.UnixMicro())
	}
	m.options.Engine.SetExceptions(m.snapshot)
	clear(m.changed)
	m.anywhere = false
}

// allPlaces drops ended entries and returns the places of the rest.
func (m *Manager) allPlaces(now time.Time) map[place]bool {
	places := make(map[place]bool, len(m.entries))
	for name, e := range m.entries {
		switch {
		case !e.Until.After(now):
			delete(m.entries, name)
		case e.Kind != Grant:
			places[place{e.Scope, e.Key}] = true
		}
	}
	return places
}

// exception returns the exception at a place.
func (m *Manager) exception(memo map[insteadID][]engine.Instead, p place) engine.Exception {
	x := engine.Exception{Scope: p.scope, Key: p.key}
	if e := m.entries[nameOf(Ban, p.scope, p.key)]; e != nil {
		x.BannedUntil = e.Until.UnixMicro()
	}
	if e := m.entries[nameOf(Limit, p.scope, p.key)]; e != nil {
		x.LimitUntil, x.Instead = e.Until.UnixMicro(), m.instead(memo, e)
	}
	return x
}

type insteadID struct {
	scope, domain, rule, rate, key string
	burst                          int64
}

// instead returns the replacements of the rules of an entry. Many entries share them.
func (m *Manager) instead(memo map[insteadID][]engine.Instead, e *Entry) []engine.Instead {
	id := insteadID{scope: e.Scope, domain: e.Domain, rule: e.Rule, rate: e.Rate, burst: e.Burst}
	for _, r := range m.rules.InScope(e.Scope) {
		if r.HasTable() && (e.Rate == "" || r.Limit.Rule().OwnZone) {
			id.key = e.Key // it keeps the rate, or the time zone, of its row
		}
	}
	list, ok := memo[id]
	if ok {
		return list
	}
	for _, r := range m.rules.OfLimit(e.Scope, e.Domain, e.Rule) {
		other, err := r.ForKey(e.Key).WithLimit(e.Rate, e.Burst)
		if err != nil {
			m.options.Logger.Warn("ignored an override that does not fit its rule",
				"domain", e.Domain, "rule", e.Rule, "at", r.Position(), "err", err)
			continue
		}
		list = append(list, engine.Instead{Of: r, Rule: other})
	}
	memo[id] = list
	return list
}

// Put writes an entry, replacing the key's entry of the same kind, and activates it
// here. It is active even if the error wraps ErrNotSaved.
func (m *Manager) Put(ctx context.Context, e *Entry) error {
	stored := m.onTable(e)
	text, err := stored.encode()
	if err != nil {
		return err
	}
	row := Row{Name: e.name(), Value: text, Until: stored.Until, Version: m.version()}
	err = m.options.Table.Put(ctx, row, m.options.Most)
	if err != nil && !errors.Is(err, ErrNotSaved) {
		return err
	}
	m.hearOwn(row)
	m.syncNow(ctx)
	return err
}

// syncNow is Sync after a change made here. The change was already made, so errors are
// left to the next Sync.
func (m *Manager) syncNow(ctx context.Context) { _ = m.Sync(ctx) }

// Delete ends an entry and reports whether there was one.
func (m *Manager) Delete(ctx context.Context, e *Entry) (bool, error) {
	if m.knowsEnded(e.name()) {
		if m.syncNow(ctx); m.knowsEnded(e.name()) {
			return false, nil // it was ended in another region
		}
	}
	row := Row{Name: e.name(), Value: m.knows(e.name()), Version: m.version()}
	was, err := m.options.Table.Delete(ctx, row, m.options.Most)
	if err != nil && !errors.Is(err, ErrNotSaved) {
		return was, err
	}
	if was {
		row.Value, row.Deleted = "", true
		m.hearOwn(row)
	}
	m.syncNow(ctx)
	return was, err
}

// Touch tells all processes that keys were given budget, so that they drop remembered
// refusals.
func (m *Manager) Touch(ctx context.Context) error {
	if err := m.options.Table.Touch(ctx); err != nil {
		return err
	}
	m.syncNow(ctx)
	return nil
}

// Of returns the ban and the limit of a key; nil means none.
func (m *Manager) Of(scope, key string) (ban, limit *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active(nameOf(Ban, scope, key)), m.active(nameOf(Limit, scope, key))
}

// active returns a copy of an entry that has not ended.
func (m *Manager) active(name string) *Entry {
	e := m.entries[name]
	if e == nil || !e.Until.After(m.options.Clock()) {
		return nil
	}
	out := *e
	return &out
}

// Count returns the number of active bans and limits.
func (m *Manager) Count() (bans, limits int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.options.Clock()
	for _, e := range m.entries {
		switch {
		case !e.Until.After(now):
		case e.Kind == Ban:
			bans++
		case e.Kind == Limit:
			limits++
		}
	}
	return bans, limits
}

// Entries returns all active bans and limits, newest first.
func (m *Manager) Entries() []Entry {
	return slices.DeleteFunc(m.All(), func(e Entry) bool { return e.Kind == Grant })
}

// All returns all active entries, newest first, including the records of grants.
func (m *Manager) All() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.options.Clock()
	out := make([]Entry, 0, len(m.entries))
	for _, e := range m.entries {
		if e.Until.After(now) {
			out = append(out, *e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return out
}
