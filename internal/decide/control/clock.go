package control

import "time"

const (
	// apart is by how much the table's clock and ours may differ from what was
	// noted before that is noted anew.
	apart = 250 * time.Millisecond
	// prompt is how long an answer may take that is believed about the time.
	prompt = 200 * time.Millisecond
)

// tick notes how far the table's clock is ahead of ours, of which it said now
// between two times of ours. Rows end by the table's clock: so they end at the
// same time for all who share it, whatever their own clocks say.
func (m *Manager) tick(before, now, after time.Time) {
	took := after.Sub(before)
	if now.IsZero() || m.ticked && (took > prompt || took < 0) {
		return
	}
	m.ticked = true
	ahead := now.Sub(before.Add(took / 2))
	if (ahead - m.ahead).Abs() <= apart {
		return
	}
	if ahead.Abs() <= apart {
		ahead = 0
	}
	m.ahead, m.known = ahead, false // all is read again
}

// onTable returns e with times of the table's clock.
func (m *Manager) onTable(e *Entry) Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.shifted(m.ahead)
}

func (e *Entry) shifted(by time.Duration) Entry {
	out := *e
	out.Until, out.Created = e.Until.Add(by), e.Created.Add(by)
	return out
}
