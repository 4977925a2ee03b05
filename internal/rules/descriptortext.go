package rules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// ParseDescriptor reads a descriptor as one writes it on a command line:
// key=value,key=value, the outermost entry first. A backslash takes the meaning
// from a comma, an equals sign in a key, or a backslash after it. A key alone
// has an empty value.
func ParseDescriptor(text string) ([]Entry, error) {
	if text == "" {
		return nil, errors.New("the descriptor is empty, write key=value,key=value")
	}
	var entries []Entry
	var part strings.Builder
	e, inValue := Entry{}, false
	end := func() error {
		if inValue {
			e.Value = part.String()
		} else {
			e.Key = part.String()
		}
		if e.Key == "" {
			return fmt.Errorf("entry %d of the descriptor %s has no key, write key=value,key=value", len(entries)+1, clip.Quote(text))
		}
		entries = append(entries, e)
		e, inValue = Entry{}, false
		part.Reset()
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part.WriteByte(text[i])
		case c == '=' && !inValue:
			e.Key, inValue = part.String(), true
			part.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return entries, nil
}
