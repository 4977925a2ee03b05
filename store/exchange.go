package store

import (
	"context"
	"time"
)

// Recent is how old a message between regions may be that is still acted upon.
const Recent = 20 * time.Second

// Exchange carries messages between regions. Package store/regions uses one;
// an implementation over Redis is in package store/redis. Methods are safe for concurrent
// use.
type Exchange interface {
	// Lead returns whether this process acts for its region until about d from now, and
	// what the region knows. Two processes that act for one region at a time do no harm.
	Lead(ctx context.Context, d time.Duration) (Leadership, error)
	// Saw records for all processes of this region that it has acted upon the messages
	// of a region that were published up to then, by that region's clock.
	Saw(ctx context.Context, region string, upTo time.Time) error
	// Publish appends a message that every region can read.
	Publish(ctx context.Context, message []byte) error
	// Read returns the messages that a region has published after the one with the given
	// ID, oldest first, or, if that is empty, since Recent ago: as many as are
	// read at a time.
	Read(ctx context.Context, region, after string) (Messages, error)
}

// Leadership is what Lead returns.
type Leadership struct {
	Leads bool                 // this process acts for its region
	Now   time.Time            // by the clock that its messages have
	Seen  map[string]time.Time // what Saw recorded, by region
	// Identity names the data of the region's store, the same for all of its processes, and
	// changes if that is lost. It may be empty.
	Identity string
}

// Messages is what Read returns.
type Messages struct {
	Messages []Message
	More     bool      // there may be more
	Now      time.Time // by the clock of the region that was read, while it was
}

// Message is a message of another region.
type Message struct {
	ID   string    // different for each message of a region
	At   time.Time // when it was published, by the clock of its region
	Data []byte
}
