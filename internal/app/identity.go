package app

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/jwt"
)

// newVerifier returns what verifies tokens, or nil if nothing is to.
func (a *App) newVerifier() (*jwt.Verifier, error) {
	c := &a.options.Config.JWT
	if !c.Enabled() {
		return nil, nil //nolint:nilnil // nothing is to
	}
	v, err := jwt.New(jwt.Options{
		Keys: c.Keys, SecretFile: c.SecretFile, Issuer: c.Issuer, Audience: c.Audience, Algorithms: c.Algorithms,
		Header: c.Header, Cookie: c.Cookie, Leeway: c.Leeway, Refresh: c.Refresh,
		Refuse: c.OnInvalid == config.InvalidRefuse, Logger: a.log,
	})
	if err != nil {
		source := "jwt"
		switch {
		case c.SecretFile == "":
			source = "jwt.keys"
		case c.Keys == "":
			source = "jwt.secret_file"
		}
		return nil, &config.SourceError{Source: source, Message: err.Error()}
	}
	return v, nil
}

// tokens returns what doors ask about tokens; nil if there is nothing to ask.
func (a *App) tokens() client.Tokens {
	if a.verifier == nil {
		return nil // and not an interface that holds nil
	}
	if a.clock == nil {
		return a.verifier
	}
	return wallTokens{a.verifier, a.clock}
}

// wallTokens holds tokens against the wall clock, whatever the time is that
// limits go by: others have written what is in them.
type wallTokens struct {
	verifier *jwt.Verifier
	clock    *steady.Clock
}

// Verify implements client.Tokens.
func (t wallTokens) Verify(h http.Header, _ time.Time) (client.Verified, error) {
	return t.verifier.Verify(h, t.clock.Wall())
}
