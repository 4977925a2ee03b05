package serving

import (
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// With little memory no door uses so much that the others must refuse requests.
func TestDoorsTakeAnEighthOfTheMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, row := range []struct{ memory, want int64 }{
		{0, 64 * mib},
		{2048 * mib, 64 * mib},
		{160 * mib, 20 * mib},
		{16 * mib, 2 * mib},
	} {
		c := &config.Config{}
		c.Overload.Memory = row.memory
		d := &Doors{Options: Options{Config: c}}
		if got := d.roomOfADoor(); got != row.want {
			t.Errorf("%d MiB: %d, want %d", row.memory/mib, got, row.want)
		}
	}
}
