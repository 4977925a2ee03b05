package zone_test

import (
	"archive/zip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests do not depend on the machine's zones

	"github.com/headgate/headgate/internal/rules/zone"
)

func load(t testing.TB) *zone.Table {
	t.Helper()
	table, err := zone.Load()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// names.txt has the zones of the toolchain, without Factory, which means that no zone has
// been chosen.
func TestNames(t *testing.T) {
	t.Parallel()
	archive, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")) //nolint:staticcheck // the toolchain that runs the test
	if err != nil {
		t.Skip("this toolchain comes without a zone database:", err)
	}
	defer archive.Close() //nolint:errcheck // it was only read
	var want []string
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			want = append(want, f.Name)
		}
	}
	slices.Sort(want)
	if got := zone.Names(); !slices.Equal(got, want) {
		t.Errorf("%d names, the toolchain has %d: write names.txt again", len(got), len(want))
	}
	if got := load(t).Len(); got != len(want) {
		t.Errorf("%d zones were loaded, want %d", got, len(want))
	}
}

// A name gives the zone that time.LoadLocation gives. Nothing else is a zone, whatever
// files there are.
func FuzzFind(f *testing.F) {
	for _, name := range []string{
		"Europe/Berlin", "UTC", "Local", "", "europe/berlin", "../../etc/localtime", "Europe/../Europe/Berlin", "Europe//Berlin",
		"/usr/share/zoneinfo/Europe/Berlin", "Europe", "Factory", "Europe/Berlin\x00", "Etc/GMT+12", strings.Repeat("x", 1<<16),
	} {
		f.Add(name)
	}
	table := load(f)
	known := zone.Names()
	f.Fuzz(func(t *testing.T, name string) {
		i, ok := table.Find(name)
		if ok != slices.Contains(known, name) {
			t.Fatalf("%.80q: %v", name, ok)
		}
		if !ok {
			return
		}
		want, err := time.LoadLocation(name)
		if err != nil || table.At(i).String() != want.String() {
			t.Errorf("%q: %v, want %v %v", name, table.At(i), want, err)
		}
	})
}

func TestFindAllocatesNothing(t *testing.T) {
	table, long := load(t), strings.Repeat("Europe/", 1000)
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range [...]string{"Asia/Tokyo", "Asia/Atlantis", long} {
			table.Find(name)
		}
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
