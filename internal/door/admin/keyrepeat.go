package admin

import (
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/offenders"
)

// RepeatView is what on_repeat has counted about a key.
type RepeatView struct {
	Mode     string `json:"mode"`     // shadow: nobody is banned
	Refusals int64  `json:"refusals"` // how many count towards the next ban
	Of       int64  `json:"of"`       // how many lead to it
	Within   int64  `json:"within_ms"`
	// Bans is how many bans of the key there were, or would have been in shadow mode, and
	// LastBan when the last one started.
	Bans    int64      `json:"bans"`
	LastBan *time.Time `json:"last_ban,omitempty"`
	NextBan int64      `json:"next_ban_ms"` // how long the next one lasts
}

// repeat fills in what on_repeat has counted.
func (k keys) repeat(c *keyCall) error {
	o := c.ruled.OnRepeat
	if o == nil {
		return nil
	}
	r, err := offenders.RecordOf(c.ctx, k.Store, c.ruled, c.key, c.now)
	if err != nil {
		return err
	}
	c.answer.Repeat = &RepeatView{
		Mode: r.Mode.String(), Refusals: r.Refusals, Of: o.Refusals.N(), Within: answer.Milliseconds(o.Refusals.Period()),
		Bans: r.Bans, NextBan: answer.Milliseconds(r.Next),
	}
	if !r.LastBan.IsZero() {
		c.answer.Repeat.LastBan = new(r.LastBan.UTC().Truncate(time.Millisecond))
	}
	return nil
}
