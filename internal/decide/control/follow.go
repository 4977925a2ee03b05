package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// Merging is a Table that takes changes of other regions, as redis.Table does.
type Merging interface {
	Forgetful
	Merge(ctx context.Context, news *redis.TableNews, most int) (redis.TableMerged, error)
	Mark(ctx context.Context, region string) (string, error)
}

// Peer is the table of another region, as redis.PeerTable is.
type Peer interface {
	Look(ctx context.Context, region string) (state State, mark string, err error)
	Since(ctx context.Context, of State, version int64, most int) ([]Row, error)
}

// Order is a grant or a reset of another region.
type Order struct {
	*Entry
	ID string // different for each
	// Left is how long a grant lasts.
	Left time.Duration
}

// FollowOptions configure a Follower. All are required, but OnError.
type FollowOptions struct {
	Manager *Manager // whose table is Merging, and whose Options.Region is set
	Region  string   // the other one
	Table   Peer
	// Carry carries out an order, at most once whatever the number of calls. An error that
	// wraps headgate.ErrUnavailable means that it is to be called again.
	Carry func(ctx context.Context, o *Order) error
	Clock func() time.Time
	// OnError is told of every failure, and of nil after a success. It may be nil.
	OnError func(region string, err error)
}

// Follower brings what another region says of keys to this one: bans, overrides, grants,
// resets. It reads that region's table, and merges what is newer into this one's: of two
// changes of an entry, the one with the greater stamp. So all regions come to the same,
// in whatever order they read each other, also by way of a third one.
//
// How far it has read is kept in this region's table, written in the same step as the
// changes: it is lost when they are, and no other process has to begin again. More than
// one Follower at a time does no harm.
type Follower struct {
	options FollowOptions
	table   Merging
	done    [2]State  // of this region's table and of the other one, after which all was merged
	checked time.Time // when done was last compared with what this region's table says
	again   time.Time
	stats   followed
}

const (
	// followPage is how many rows are read and merged at a time.
	followPage = 500
	// fullRetry is how long to wait after rows have found no space.
	fullRetry = 10 * time.Second
	// mostTick limits a Tick.
	mostTick = 10 * time.Second
)

var errItself = errors.New("the Redis of that region is this one's own")

// Follow returns a Follower. It does nothing between calls of [Follower.Tick].
func Follow(o FollowOptions) (*Follower, error) {
	table, ok := o.Manager.options.Table.(Merging)
	if !ok || o.Manager.options.Region == "" {
		return nil, errors.New("control: the table cannot take changes of other regions")
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	return &Follower{options: o, table: table}, nil
}

// Tick merges what is new. One goroutine calls it, every now and then.
func (f *Follower) Tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mostTick)
	defer cancel()
	err := f.tick(ctx)
	f.stats.ended(f.options.Clock(), err)
	f.options.OnError(f.options.Region, err)
}

func (f *Follower) tick(ctx context.Context) error {
	here, _, err := f.options.Manager.own()
	if err != nil {
		return err
	}
	there, _, err := f.options.Table.Look(ctx, f.options.Manager.options.Region)
	if err != nil {
		return err
	}
	if there.Identity == here.Identity && here.Identity != "" {
		return errItself
	}
	at := [2]State{{Identity: here.Identity, Generation: here.Generation}, there}
	at[1].Now = time.Time{}
	now := f.options.Clock()
	if at == f.done && now.Sub(f.checked).Abs() < afresh || there.Identity == "" || now.Before(f.again) {
		return nil
	}
	mark, err := f.table.Mark(ctx, f.options.Region)
	if err != nil {
		return err
	}
	all, err := f.readFrom(ctx, &there, mark)
	switch {
	case err != nil:
		return err
	case all:
		f.done, f.checked = at, now
	}
	return nil
}

// readFrom merges all rows after a mark, and reports whether all were: those that were not
// are tried again, because the mark stays.
func (f *Follower) readFrom(ctx context.Context, there *State, mark string) (all bool, err error) {
	version := markOf(mark, there)
	if version == there.Version {
		return true, nil
	}
	for all = true; ; {
		rows, err := f.options.Table.Since(ctx, *there, version, followPage)
		if err != nil {
			return false, err
		}
		if len(rows) > 0 {
			version = rows[len(rows)-1].Version
		}
		last := len(rows) < followPage
		if last {
			version = max(version, there.Version)
		}
		next := mark
		if all {
			next = markAt(there, version)
		}
		whole, err := f.merge(ctx, rows, there.Now, next)
		if err != nil {
			return false, err
		}
		if all = all && whole; all {
			mark = next
		}
		if last {
			return all, nil
		}
	}
}

// merge carries out and merges the rows that are newer than what this region has.
func (f *Follower) merge(ctx context.Context, rows []Row, there time.Time, mark string) (all bool, err error) {
	m := f.options.Manager
	here, now, err := m.own()
	if err != nil {
		return false, err
	}
	newer, odd := m.weigh(f.options.Region, rows, now, there)
	f.stats.unreadable.Add(int64(odd))
	merges := make([]redis.TableMerge, 0, len(newer))
	for i := range newer {
		w := &newer[i]
		if w.order {
			keep, err := f.carry(ctx, w, there)
			if err != nil {
				return false, err
			}
			if !keep {
				continue
			}
		}
		merges = append(merges, w.merge)
	}
	is, err := f.table.Merge(ctx, &redis.TableNews{Region: f.options.Region, Mark: mark, Rows: merges, Seen: here.Version}, m.options.Most)
	if err != nil {
		return false, err
	}
	f.stats.received.Add(int64(is.Written))
	f.stats.full.Add(int64(is.Full))
	if is.Full > 0 {
		f.again = f.options.Clock().Add(fullRetry)
	}
	if is.Written+is.Changed > 0 {
		m.syncNow(ctx)
	}
	return is.Changed+is.Full == 0, nil
}

// carry carries out a grant or a reset, and reports whether to record it here too. An old
// reset is not carried out: it would erase what was used since.
func (f *Follower) carry(ctx context.Context, w *weighed, there time.Time) (keep bool, err error) {
	o := &Order{Entry: w.entry, ID: f.options.Region + ":" + w.entry.ID}
	switch {
	case w.entry.Kind == Grant:
		o.Left = w.entry.Until.Sub(there)
	case there.Sub(w.entry.Created) > store.Recent:
		f.stats.late.Add(1)
		return false, nil
	default:
		o.ID = fmt.Sprint(f.options.Region, ":", w.merge.Above)
	}
	switch err := f.options.Carry(ctx, o); {
	case errors.Is(err, headgate.ErrUnavailable), ctx.Err() != nil:
		return false, fmt.Errorf("cannot carry out a %s: %w", w.entry.Kind, err)
	case err != nil:
		f.stats.failed.Add(1)
	}
	return true, nil
}

// markAt describes that a table was read up to a version, by this release.
func markAt(s *State, at int64) string {
	return fmt.Sprintf("%s %d %d %d", s.Identity, s.Generation, at, version)
}

// markOf returns up to which version a table was read, or 0 if it has since been lost or
// repaired, or was read by a release that reads other entries.
func markOf(mark string, s *State) int64 {
	var identity string
	var generation, at int64
	var by int
	if _, err := fmt.Sscanf(mark, "%s %d %d %d", &identity, &generation, &at, &by); err != nil {
		return 0
	}
	if identity != s.Identity || generation != s.Generation || by != version || at < 0 || at > s.Version {
		return 0
	}
	return at
}

// Reached reports whether the other region has merged everything that this process knows
// of its own region's table.
func (f *Follower) Reached(ctx context.Context) (bool, error) {
	here, _, err := f.options.Manager.own()
	if err != nil {
		return false, err
	}
	_, mark, err := f.options.Table.Look(ctx, f.options.Manager.options.Region)
	if err != nil {
		return false, err
	}
	var identity string
	var generation, at int64
	if _, err := fmt.Sscanf(mark, "%s %d %d", &identity, &generation, &at); err != nil {
		return false, nil //nolint:nilerr // it has merged nothing
	}
	return identity == here.Identity && generation == here.Generation && at >= here.Version, nil
}

// Followed is what a process knows of the bans, overrides, grants and resets of another
// region.
type Followed struct {
	Region string
	// Received is how many changes it has merged since it started. Unreadable, Full, Late
	// and Failed are how many it did not take because they cannot be read by this release,
	// found no space, were resets that are too old, or grants and resets whose rule this
	// region does not have.
	Received, Unreadable, Full, Late, Failed int64
	// HasRead reports whether this process has read the region's table, and Read how long
	// ago. Err is why it could not be read after that.
	HasRead bool
	Read    time.Duration
	Err     error
}

// Stats returns what this process knows of the other region.
func (f *Follower) Stats() Followed {
	s := &f.stats
	is := Followed{
		Region: f.options.Region, Received: s.received.Load(),
		Unreadable: s.unreadable.Load(), Full: s.full.Load(), Late: s.late.Load(), Failed: s.failed.Load(),
	}
	if at := s.read.Load(); at != nil {
		is.HasRead, is.Read = true, f.options.Clock().Sub(*at)
	}
	if err := s.err.Load(); err != nil {
		is.Err = *err
	}
	return is
}

// followed counts what a Follower does.
type followed struct {
	received, unreadable, full, late, failed atomic.Int64
	read                                     atomic.Pointer[time.Time]
	err                                      atomic.Pointer[error]
}

func (s *followed) ended(now time.Time, err error) {
	if err != nil {
		s.err.Store(&err)
		return
	}
	s.read.Store(&now)
	s.err.Store(nil)
}
