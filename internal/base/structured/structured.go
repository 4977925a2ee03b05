// Package structured reads structured fields of HTTP (RFC 9651): Lists and Dictionaries
// of Items. It reads strictly, since a malformed field has to be ignored as a whole.
package structured

import (
	"strings"
	"unicode/utf8"
)

// Kind is the type of a value.
type Kind uint8

const (
	// Other is a value of another type, which is valid but means nothing here: a
	// Decimal, Token, Byte Sequence, Boolean, Date or Display String, or an Inner List.
	Other Kind = iota
	// Integer is a whole number of at most 15 digits.
	Integer
	// String is text in quotes.
	String
)

// Item is a member of a field.
type Item struct {
	Key     string // of a Dictionary, or of a parameter
	Kind    Kind
	Integer int64
	Params  []Item // in their order; of equal keys the last counts
}

// Param returns the Integer of a parameter. It reports whether there is the parameter,
// and whether it is an Integer.
func (i *Item) Param(key string) (n int64, found, isInteger bool) {
	for _, p := range i.Params {
		if p.Key == key {
			n, found, isInteger = p.Integer, true, p.Kind == Integer
		}
	}
	return n, found, isInteger
}

// List reads the lines of a field as one List. It reports false if they are not one. A
// field without members is an empty List.
func List(lines []string) ([]Item, bool) { return read(lines, (*parser).member) }

// Dictionary reads the lines of a field as one Dictionary, in its order; of equal keys
// the last counts.
func Dictionary(lines []string) ([]Item, bool) { return read(lines, (*parser).entry) }

// parser reads s from pos on. Its methods report false where s is malformed.
type parser struct {
	s   string
	pos int
}

// read reads members that are separated by commas.
func read(lines []string, member func(*parser) (Item, bool)) (items []Item, ok bool) {
	p := parser{s: strings.Trim(strings.Join(lines, ", "), " ")}
	if p.s == "" {
		return nil, true
	}
	for {
		item, ok := member(&p)
		if !ok {
			return nil, false
		}
		items = append(items, item)
		p.skip(" \t")
		if p.pos == len(p.s) {
			return items, true
		}
		if !p.take(',') {
			return nil, false
		}
		p.skip(" \t")
	}
}

// peek returns the next byte, or 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.s) {
		return p.s[p.pos]
	}
	return 0
}

// take skips the next byte if it is c.
func (p *parser) take(c byte) bool {
	if p.peek() != c || p.pos == len(p.s) {
		return false
	}
	p.pos++
	return true
}

func (p *parser) skip(set string) {
	p.while(func(c byte) bool { return strings.IndexByte(set, c) >= 0 })
}

// while returns the following bytes that are in a set.
func (p *parser) while(in func(byte) bool) string {
	start := p.pos
	for p.pos < len(p.s) && in(p.s[p.pos]) {
		p.pos++
	}
	return p.s[start:p.pos]
}

// member reads an Item or an Inner List with its parameters.
func (p *parser) member() (Item, bool) {
	if !p.take('(') {
		return p.item()
	}
	for {
		p.skip(" ")
		if p.take(')') {
			item := Item{}
			return item, p.params(&item)
		}
		if _, ok := p.item(); !ok {
			return Item{}, false
		}
		if c := p.peek(); c != ' ' && c != ')' {
			return Item{}, false
		}
	}
}

// entry reads a member of a Dictionary. Without a value it is a Boolean.
func (p *parser) entry() (Item, bool) {
	key, ok := p.key()
	if !ok {
		return Item{}, false
	}
	item := Item{}
	if p.take('=') {
		item, ok = p.member()
	} else {
		ok = p.params(&item)
	}
	item.Key = key
	return item, ok
}

func (p *parser) item() (Item, bool) {
	item, ok := p.bare()
	return item, ok && p.params(&item)
}

func (p *parser) params(of *Item) bool {
	for p.take(';') {
		p.skip(" ")
		key, ok := p.key()
		if !ok {
			return false
		}
		var value Item
		if p.take('=') {
			if value, ok = p.bare(); !ok {
				return false
			}
		}
		value.Key = key
		of.Params = append(of.Params, value)
	}
	return true
}

func (p *parser) key() (string, bool) {
	if c := p.peek(); (c < 'a' || c > 'z') && c != '*' {
		return "", false
	}
	return p.while(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }), true
}

// bare reads a value without parameters.
func (p *parser) bare() (Item, bool) {
	switch c := p.peek(); {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		p.pos++
		return Item{Kind: String}, p.text()
	case c == '*' || isLetter(c):
		p.while(isToken)
		return Item{}, true
	case c == ':':
		p.pos++
		p.while(func(c byte) bool { return isLetter(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 })
		return Item{}, p.take(':')
	case c == '?':
		p.pos++
		return Item{}, p.take('0') || p.take('1')
	case c == '@':
		p.pos++
		n, ok := p.number()
		return Item{}, ok && n.Kind == Integer
	case c == '%':
		p.pos++
		return Item{}, p.take('"') && p.display()
	}
	return Item{}, false
}

// number reads an Integer or a Decimal.
func (p *parser) number() (Item, bool) {
	negative := p.take('-')
	digits := p.while(isDigit)
	if p.take('.') {
		fraction := p.while(isDigit)
		return Item{}, digits != "" && len(digits) <= 12 && fraction != "" && len(fraction) <= 3
	}
	item := Item{Kind: Integer}
	for i := range min(len(digits), 15) {
		item.Integer = item.Integer*10 + int64(digits[i]-'0')
	}
	if negative {
		item.Integer = -item.Integer
	}
	return item, digits != "" && len(digits) <= 15
}

// text reads a String after its first quote.
func (p *parser) text() bool {
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		p.pos++
		switch {
		case c == '"':
			return true
		case c == '\\':
			if !p.take('"') && !p.take('\\') {
				return false
			}
		case c < 0x20 || c > 0x7e:
			return false
		}
	}
	return false
}

// display reads a Display String after its first quote: text in UTF-8 whose other bytes
// are escaped.
func (p *parser) display() bool {
	var text []byte
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		p.pos++
		switch {
		case c == '"':
			return utf8.Valid(text)
		case c == '%':
			high, low := strings.IndexByte(hexDigits, p.peek()), -1
			if p.pos++; high >= 0 {
				low = strings.IndexByte(hexDigits, p.peek())
			}
			if p.pos++; low < 0 {
				return false
			}
			text = append(text, byte(high<<4|low))
		case c < 0x20 || c > 0x7e:
			return false
		default:
			text = append(text, c)
		}
	}
	return false
}

const hexDigits = "0123456789abcdef"

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
func isLetter(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }
func isToken(c byte) bool {
	return isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
