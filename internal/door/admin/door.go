package admin

import (
	"time"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/transport/netbound"
)

const name = "admin"

// Door returns the door for operators. What it has to offer is made when it is
// opened.
func Door(offer func(*door.Process) Options) door.Door {
	return door.Door{
		Section: section(), ALPN: []string{"h2", "http/1.1"}, Tokens: true, Keeps: true, Policy: netbound.ByStateThenRead,
		Open: func(p *door.Process) (door.Server, error) {
			h, err := New(offer(p))
			if err != nil {
				return nil, err
			}
			// Profiles take their time.
			return door.NewHTTP(p, door.HTTPOptions{Handler: answer.Lingering(h), Write: 2 * time.Minute, Room: p.Room()})
		},
	}
}
