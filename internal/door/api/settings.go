package api

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/config"
)

// DefaultAddress is where the API listens if nobody says otherwise.
const DefaultAddress = "127.0.0.1:8080"

// Settings are those that no other door has.
type Settings struct {
	// Hosts are names, besides those of this machine, that callers may come by.
	Hosts []string
	// Explain opens or closes POST /v1/explain; see [Explains].
	Explain Explain
}

// Explain says whether the API explains rules to its callers.
type Explain string

// The choices.
const (
	// ExplainAuto is ExplainOn unless strangers may use the API: it can be
	// reached from other machines and asks neither for a token nor for a
	// certificate.
	ExplainAuto Explain = ""
	// ExplainOn does, for everybody who may use the API.
	ExplainOn Explain = "on"
	// ExplainOff does not.
	ExplainOff Explain = config.Off
)

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Default: DefaultAddress, Shares: true, OverHTTP: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.List("api.token", setTokens),
			config.SecretFile("api.token_file", func(c *config.Config, v string) error { return setTokens(c, config.Lines(v)) }),
			config.List("api.hosts", func(s *Settings, v []string) (err error) { s.Hosts, err = hostNames(v); return err }),
			config.One("api.explain", func(s *Settings, v string) (err error) { s.Explain, err = parseExplain(v); return err }),
		},
		Asks: "api.token", Asked: func(c *config.Config) bool { return len(c.Tokens) > 0 },
	}
}

func setTokens(c *config.Config, values []string) error {
	tokens := make([]config.Secret, len(values))
	for i, v := range values {
		var err error
		if tokens[i], err = config.ParseToken(v); err != nil {
			return err
		}
	}
	c.Tokens = tokens
	return nil
}

// hostNames checks names such as example.org, *.example.org or *.
func hostNames(values []string) ([]string, error) {
	for _, v := range values {
		name := strings.TrimPrefix(v, "*.")
		if v != "*" && (name == "" || strings.ContainsAny(name, "*:/ []")) {
			return nil, config.Hinted(fmt.Sprintf("%q is not the name of a host", v), "write it without scheme and port, such as api.example.org or *.example.org")
		}
	}
	return values, nil
}

func parseExplain(v string) (Explain, error) {
	if v == "auto" {
		return ExplainAuto, nil
	}
	on, err := config.OnOff(v)
	if on {
		return ExplainOn, err
	}
	return ExplainOff, err
}

// Explains reports whether the API explains rules.
func Explains(c *config.Config) bool {
	if e := config.Own[Settings](c).Explain; e != ExplainAuto {
		return e == ExplainOn
	}
	for _, exposed := range c.Exposed() {
		if exposed.Door == name && exposed.Anybody {
			return false
		}
	}
	return true
}
