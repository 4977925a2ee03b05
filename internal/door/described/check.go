package described

import (
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Check is one check by a caller that sends attributes; it is their rules.Request.
type Check struct {
	Request

	Domain string
	Cost   int64
	Kind   store.Kind
	// Rule, if not nil, is a limit that came with the check, which counts by Key.
	Rule *rules.Rule
	Key  string
}

// Query returns the query for the engine.
func (c *Check) Query(at int64, door engine.Door) engine.Query {
	return engine.Query{Domain: c.Domain, Part: engine.Part{Request: c, Cost: c.Cost, Kind: c.Kind, Rule: c.Rule, Key: c.Key}, At: at, Door: door}
}
