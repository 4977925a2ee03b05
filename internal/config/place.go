package config

import (
	"errors"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
)

// place is where in the file a setting, or a section of them, stands.
type place struct {
	line, column int
	section      bool // and not a value
}

// note remembers where the value of a key stands.
func (c *Config) note(key string, at place) {
	if c.places == nil {
		c.places = map[string]place{}
	}
	c.places[key] = at
}

// forget forgets what the file says of a key that somebody else has set, and of
// those above and below it.
func (c *Config) forget(key string) {
	for known := range c.places {
		if known == key || strings.HasPrefix(known, key+".") || strings.HasPrefix(key, known+".") {
			delete(c.places, known)
		}
	}
}

// Locate adds to a [SourceError] about a setting where in the file it stands, or
// the section that it is missing in. Other errors, and those about settings that
// the file does not have, it returns as they are.
func (c *Config) Locate(err error) error {
	e, ok := err.(*SourceError) //nolint:errorlint // itself, and not one of several
	if !ok || e.Line > 0 {
		return err
	}
	for key := e.Source; key != ""; {
		if at, ok := c.places[key]; ok {
			located := *e
			located.File, located.Line, located.Column = c.File, at.line, at.column
			if !at.section {
				located.Source = key // such as store, whose value is what store.redis.url may say
			}
			return &located
		}
		dot := strings.LastIndexByte(key, '.')
		key = key[:max(dot, 0)]
	}
	return err
}

// Diagnostic returns e as what is said of a file.
func (e *SourceError) Diagnostic() diagnostic.Diagnostic {
	return diagnostic.Diagnostic{File: e.File, Line: e.Line, Column: e.Column, Message: e.Source + ": " + e.Message, Hint: e.Hint}
}

func (c *Config) locateWarnings() {
	for i, w := range c.Warnings {
		if located, ok := errors.AsType[*SourceError](c.Locate(w)); ok {
			c.Warnings[i] = located
		}
	}
}
