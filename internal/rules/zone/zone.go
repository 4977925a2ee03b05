// Package zone has the time zones that requests may name.
package zone

import (
	_ "embed"
	"errors"
	"strings"
	"time"
)

// names.txt lists the zones of the IANA database, as of the toolchain: see TestNames.
//
//go:embed names.txt
var names string

// Table has the time zones of the IANA database. It is immutable. Names come from
// requests: a look-up reads no file, allocates nothing, and is as fast for names that do
// not exist.
type Table struct {
	index map[string]int
	zones []*time.Location
}

// Names returns the names of all zones, sorted.
func Names() []string { return strings.Fields(names) }

// Load reads the zones: about 600, and 900 KB. Zones that this machine does not know are
// left out. It fails if there are none.
func Load() (*Table, error) {
	t := &Table{index: make(map[string]int, 1<<10)}
	for _, name := range Names() {
		zone, err := time.LoadLocation(name)
		if err != nil {
			continue
		}
		if name == "UTC" {
			zone = time.UTC
		}
		t.index[name] = len(t.zones)
		t.zones = append(t.zones, zone)
	}
	if len(t.zones) < 2 {
		return nil, errors.New("this machine has no time zone database")
	}
	return t, nil
}

// Len returns the number of zones.
func (t *Table) Len() int { return len(t.zones) }

// Find returns the number of the zone with this name, from 0 on. Names are written as in
// the IANA database: Europe/Berlin.
func (t *Table) Find(name string) (int, bool) {
	if len(name) > longest {
		return 0, false
	}
	i, ok := t.index[name]
	return i, ok
}

// longest is more than the length of any name, in bytes.
const longest = 64

// At returns the zone with a number.
func (t *Table) At(i int) *time.Location { return t.zones[i] }
