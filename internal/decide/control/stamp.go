package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Stamp says when an entry was changed, and in which region. In every region the change
// with the greatest stamp wins, whatever the order in which they arrive.
//
// It is a hybrid clock: the version of the row in the table where the change was made.
// Versions are times in microseconds by the clock of that region's store, but always grow,
// and exceed every stamp that the table contains. So a change that was made by somebody who
// could see another one wins over it, whatever the clocks say. Of two that were made without
// seeing each other, the later one wins by the clocks of their stores.
//
// An entry without a stamp was changed in this region.
type Stamp struct {
	At   int64
	From string // the region
}

func (s Stamp) compare(o Stamp) int {
	return cmp.Or(cmp.Compare(s.At, o.At), cmp.Compare(s.From, o.From))
}

const (
	// lastStamp is the year 2223. Greater stamps come from a broken clock, and there must
	// be space above them: Redis counts exactly up to 2^53.
	lastStamp     = 8_000_000_000_000_000
	longestRegion = 64
)

func (s Stamp) check() error {
	switch {
	case s.At <= 0 || s.At > lastStamp:
		return fmt.Errorf("its stamp %d is out of range", s.At)
	case s.From == "" || len(s.From) > longestRegion:
		return errors.New("its stamp has no region")
	}
	return nil
}

var errNoEntry = errors.New("it is not an entry")

// stamped returns the text of an entry with the stamp s. It keeps fields that this release
// does not know.
func (s Stamp) stamped(text string) (string, error) {
	from, err := json.Marshal(s.From)
	if err != nil || !strings.HasPrefix(text, "{\"") {
		return "", cmp.Or(err, errNoEntry)
	}
	return fmt.Sprintf(`{"at":%d,"from":%s,%s`, s.At, from, text[1:]), nil
}

// ended returns the text that says that an entry was ended.
func (s Stamp) ended(name string) (string, error) {
	text, err := json.Marshal(stored{Version: version, Kind: Ended.String(), Key: []byte(name), At: s.At, From: s.From})
	return string(text), err
}
