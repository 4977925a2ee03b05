package warning

import "unsafe"

// Memory returns the bytes that are kept of all rules.
func (o *Observer) Memory() (sum int) {
	for _, w := range o.table.Load().byName {
		s := w.state.Load()
		if s == nil {
			continue
		}
		sum += int(unsafe.Sizeof(*s) + unsafe.Sizeof(*s.suspects) + unsafe.Sizeof(*s.fullness) + unsafe.Sizeof(*s.newcomers))
		for i := range s.suspects.slots {
			sum += cap(s.suspects.slots[i].text)
		}
		for half := range s.fullness.half {
			for _, b := range s.fullness.half[half] {
				sum += 8 * cap(b)
			}
			sum += 8 * cap(s.newcomers.gen[half])
		}
	}
	return sum
}
