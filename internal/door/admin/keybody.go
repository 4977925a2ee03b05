package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/store"
)

// keyBody is the body of POST /v1/keys/{action}. Missing fields are zero.
type keyBody struct {
	Domain, Rule string
	Key          keyText
	Amount       int64
	// Until is the end, also if the body gives a duration.
	Until  time.Time
	Rate   string
	Burst  int64
	Reason string

	lasting time.Duration
}

// keyText is a key as operators write it: its parts in order, or by attribute name.
// A nil part stands for requests without that attribute.
type keyText struct {
	Parts  []*string
	ByName map[string]*string
	Names  []string // of ByName, in order
}

const (
	maxLasting  = 10 * 366 * 24 * time.Hour // the longest ban, override or grant
	maxReason   = 500                       // the longest reason, in bytes
	maxKeyParts = 64                        // the most parts of a key
)

// parseKeyBody reads the body of an action. Durations start at now. Its errors are
// shown to the caller.
func parseKeyBody(action *KeyAction, text []byte, now time.Time) (*keyBody, error) {
	b := &keyBody{}
	known := append([]string{"domain", "rule", "key"}, action.Fields...)
	err := readObject(text, func(name string, value json.RawMessage) error {
		if !slices.Contains(known, name) {
			return unknownField(action, name, known)
		}
		if err := b.set(name, value, now); err != nil {
			return fmt.Errorf("%q %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, b.check(action, now)
}

func unknownField(action *KeyAction, name string, known []string) error {
	for _, a := range KeyActions() {
		if slices.Contains(a.Fields, name) {
			return fmt.Errorf("%q does not apply to %s", name, action.Name)
		}
	}
	return fmt.Errorf("unknown field %q%s", name, nearestOf(name, known))
}

// readObject calls f for every member of a JSON object.
func readObject(text []byte, f func(name string, value json.RawMessage) error) error {
	if !utf8.Valid(text) {
		return errors.New("the body is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New(`the body must be a JSON object, such as {"rule":"login","key":["198.51.100.7"]}`)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("the body is not valid JSON: %w", err)
		}
		name, _ := t.(string)
		if seen[name] {
			return fmt.Errorf("duplicate field %q", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("the body is not valid JSON: %w", err)
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("the body is not valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON object")
	}
	return nil
}

// set parses value into the field called name.
func (b *keyBody) set(name string, value json.RawMessage, now time.Time) (err error) {
	switch name {
	case "domain":
		return text(value, &b.Domain)
	case "rule":
		return text(value, &b.Rule)
	case "key":
		return b.Key.read(value)
	case "amount":
		return number(value, &b.Amount)
	case "rate":
		return text(value, &b.Rate)
	case "burst":
		return number(value, &b.Burst)
	case "reason":
		return b.readReason(value)
	case "for":
		return b.readFor(value)
	case "until":
		return b.readUntil(value, now)
	}
	return nil
}

func text(value json.RawMessage, into *string) error {
	if json.Unmarshal(value, into) != nil || bytes.Equal(value, []byte("null")) {
		return errors.New("must be a string")
	}
	if *into == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func number(value json.RawMessage, into *int64) error {
	if json.Unmarshal(value, into) != nil || *into < 1 || *into > store.MaxLimit {
		return fmt.Errorf("must be a whole number from 1 to %d", int64(store.MaxLimit))
	}
	return nil
}

func (b *keyBody) readReason(value json.RawMessage) error {
	if err := json.Unmarshal(value, &b.Reason); err != nil {
		return errors.New("must be a string")
	}
	if len(b.Reason) > maxReason {
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(b.Reason), maxReason)
	}
	if strings.ContainsFunc(b.Reason, unicode.IsControl) {
		return errors.New("must not contain control characters")
	}
	return nil
}

func (b *keyBody) readFor(value json.RawMessage) error {
	var s string
	if err := text(value, &s); err != nil {
		return fmt.Errorf(`%w, such as "10m"`, err)
	}
	d, err := parseLasting(s)
	b.lasting = d
	return err
}

// parseLasting reads a duration in Go's format, or in days such as 30d.
func parseLasting(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); err != nil && ok {
		d, err = time.ParseDuration(days + "h")
		if d > maxLasting {
			d = maxLasting // still too long after the multiplication, which cannot overflow
		}
		d *= 24
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("is %q, not a duration such as 30s, 10m, 24h or 30d", s)
	case d < time.Millisecond || d > maxLasting:
		return 0, fmt.Errorf("is %q, must be from 1ms to 10 years", s)
	}
	return d, nil
}

func (b *keyBody) readUntil(value json.RawMessage, now time.Time) error {
	var s string
	if err := text(value, &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil:
		return fmt.Errorf("is %q, not a time such as %s", s, now.UTC().Add(time.Hour).Format(time.RFC3339))
	case !t.After(now):
		return fmt.Errorf("is %q, which is in the past: it is now %s", s, now.UTC().Format(time.RFC3339))
	case t.Sub(now) > maxLasting:
		return fmt.Errorf("is %q, more than 10 years from now", s)
	}
	b.Until = t
	return nil
}

// read reads a key: a list of strings and nulls, an object of them, or a single
// string for a list of one.
func (k *keyText) read(value json.RawMessage) error {
	if bytes.HasPrefix(value, []byte("{")) {
		k.ByName = map[string]*string{}
		err := readObject(value, func(name string, value json.RawMessage) error {
			var part *string
			if json.Unmarshal(value, &part) != nil {
				return fmt.Errorf("%q must be a string or null", name)
			}
			k.ByName[name], k.Names = part, append(k.Names, name)
			if len(k.Names) > maxKeyParts {
				return errors.New("too many parts")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("is invalid: %w", err)
		}
		return nil
	}
	var one string
	if json.Unmarshal(value, &one) == nil && !bytes.Equal(value, []byte("null")) {
		k.Parts = []*string{&one}
		return nil
	}
	if json.Unmarshal(value, &k.Parts) != nil || k.Parts == nil {
		return errors.New(`must be a list of strings, such as ["198.51.100.7"], or an object, such as {"client_ip":"198.51.100.7"}`)
	}
	if len(k.Parts) > maxKeyParts {
		return errors.New("has too many parts")
	}
	return nil
}

// check returns an error if fields are missing or contradict each other.
func (b *keyBody) check(action *KeyAction, now time.Time) error {
	switch {
	case b.lasting > 0 && !b.Until.IsZero():
		return errors.New(`use either "for" or "until", not both`)
	case b.Rule == "" && b.Key.ByName == nil:
		return errors.New(`"rule" is missing: without it, "key" must be an object that names the attributes, such as {"client_ip":"198.51.100.7"}`)
	case action.Name == "grant" && b.Amount == 0:
		return errors.New(`"amount" is missing: how much to grant`)
	case action.Name == "override" && b.Rate == "" && b.Burst == 0:
		return errors.New(`"rate" or "burst" is missing: the limit to apply instead of the rule's`)
	case (action.Name == "ban" || action.Name == "override") && b.lasting == 0 && b.Until.IsZero():
		return fmt.Errorf(`"for" or "until" is missing: say when the %s ends, such as "for":"10m"`, action.Name)
	}
	if b.lasting > 0 {
		b.Until = now.Add(b.lasting)
	}
	return nil
}
