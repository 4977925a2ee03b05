package config

import "fmt"

// Explain says whether the API explains rules to its callers.
type Explain uint8

// The choices.
const (
	// ExplainAuto is ExplainOn unless strangers may use the API: it can be
	// reached from other machines and asks neither for a token nor for a
	// certificate.
	ExplainAuto Explain = iota
	// ExplainOn does, for everybody who may use the API.
	ExplainOn
	// ExplainOff does not.
	ExplainOff
)

// String returns the name that the configuration uses.
func (e Explain) String() string {
	switch e {
	case ExplainAuto:
		return "auto"
	case ExplainOn:
		return "on"
	case ExplainOff:
		return Off
	}
	return fmt.Sprintf("explain(%d)", uint8(e))
}

func parseExplain(v string) (Explain, error) {
	if v == ExplainAuto.String() {
		return ExplainAuto, nil
	}
	on, err := onOff(v)
	if on {
		return ExplainOn, err
	}
	return ExplainOff, err
}

// Explains reports whether the API explains rules.
func (c *Config) Explains() bool {
	if c.API.Explain != ExplainAuto {
		return c.API.Explain == ExplainOn
	}
	for _, exposed := range c.Exposed() {
		if exposed.Door == DoorAPI && exposed.Anybody {
			return false
		}
	}
	return true
}
