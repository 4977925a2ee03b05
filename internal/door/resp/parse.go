package resp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
)

// The limits of the protocol, the same as in Redis. Input that exceeds them ends the
// connection.
const (
	protocolArgs   = 1 << 20
	protocolBulk   = 512 << 20
	protocolInline = 64 << 10
	// Before AUTH, commands need no more than this.
	unauthenticatedArgs    = 10
	unauthenticatedCommand = 4 << 10
	// longestHeader is the longest line with a length, including CRLF: a type, a sign,
	// 19 digits and some leading zeros.
	longestHeader = 32
)

// span is the position of an argument, counted from the first byte of its command.
type span struct{ from, to uint32 }

func (s span) end() int { return int(s.to) }

// spanSize is the size of a span in bytes.
const spanSize = 8

// cut returns the span from one byte to another. Positions always fit in 32 bits:
// commands are limited to far less.
func cut(from, to int) span { return span{uint32(from), uint32(to)} }

// bounds are the configured limits. A command that exceeds them is skipped and refused,
// and the connection stays open.
type bounds struct{ args, bulk, command int }

// status is the result of parser.next.
type status uint8

const (
	partial   status = iota // the input ends inside the command
	complete                // args has the command; it is empty for an empty command
	excessive               // the command is complete but exceeds the bounds, as complaint says
	broken                  // not a command, as complaint says; the start of the next one is unknown
)

// parser cuts the input of one connection into commands. It keeps its position inside
// a command, so input that arrives byte by byte is read only once.
type parser struct {
	bounds          bounds
	unauthenticated bool // true before AUTH, if there is a password

	args      []span // of the last complete command
	complaint string // the error for the client, if any

	pos  int // next byte to read, from the first of the command
	left int // arguments still to come; 0 between commands
	bulk int // bytes of the argument still to come, or noBulk
	over bool
}

// noBulk means that the header of an argument comes next.
const noBulk = -1

// next reads a command at the start of in. It returns how many bytes to drop: the
// whole command, or the part of a partial one that is not needed any more and must not
// be passed again.
func (p *parser) next(in []byte) (int, status) {
	if p.left > 0 {
		return p.bulks(in)
	}
	if p.pos == 0 {
		p.args, p.over, p.bulk = p.args[:0], false, noBulk
		if len(in) == 0 {
			return 0, partial
		}
		if in[0] == '*' {
			n, s := p.header(in)
			if s != complete {
				return 0, s
			}
			if p.left == 0 { // a count of 0 or less
				return p.finish(n)
			}
			p.pos = n
			return p.bulks(in)
		}
	}
	return p.inline(in)
}

// fail sets the complaint about input that ends the connection.
func (p *parser) fail(format string, a ...any) status {
	p.complaint = "ERR Protocol error: " + fmt.Sprintf(format, a...)
	return broken
}

// exceed marks the command as refused and drops its arguments.
func (p *parser) exceed(format string, a ...any) {
	if !p.over {
		p.over, p.complaint = true, "ERR "+fmt.Sprintf(format, a...)
	}
	p.args = p.args[:0]
}

// refuse marks the command that is arriving as refused, and its bytes to be dropped.
// It reports false if the end of the command cannot be found.
func (p *parser) refuse(complaint string) bool {
	if p.left == 0 {
		return false // inline
	}
	if !p.over {
		p.over, p.complaint = true, complaint
	}
	p.args = nil
	return true
}

// finish ends a command of n bytes.
func (p *parser) finish(n int) (int, status) {
	p.pos, p.left = 0, 0
	if p.over {
		return n, excessive
	}
	return n, complete
}

// header reads the number of arguments.
func (p *parser) header(in []byte) (int, status) {
	count, n, s := length(in)
	switch {
	case s == partial:
		return 0, partial
	case s == excessive:
		return 0, p.fail("too big mbulk count string")
	case s == broken || count > protocolArgs:
		return 0, p.fail("invalid multibulk length")
	case p.unauthenticated && count > unauthenticatedArgs:
		return 0, p.fail("unauthenticated multibulk length")
	case count > int64(p.bounds.args):
		p.exceed("the command has %d arguments, at most %d are allowed", count, p.bounds.args)
	}
	p.left = int(max(count, 0))
	return n, complete
}

// bulks reads the arguments from p.pos on.
func (p *parser) bulks(in []byte) (int, status) {
	for p.left > 0 {
		if p.bulk == noBulk {
			if s := p.bulkHeader(in); s != complete {
				return p.kept(s)
			}
		}
		if p.over { // skip what has arrived of it
			n := min(p.bulk, len(in)-p.pos)
			p.pos, p.bulk = p.pos+n, p.bulk-n
		}
		end := p.pos + p.bulk
		if len(in) < end+2 {
			return p.kept(partial)
		}
		if in[end] != '\r' || in[end+1] != '\n' {
			return 0, p.fail("expected CRLF after an argument")
		}
		if !p.over {
			p.args = append(p.args, cut(p.pos, end))
		}
		p.pos, p.bulk = end+2, noBulk
		p.left--
	}
	return p.finish(p.pos)
}

// kept returns how much of an incomplete command can be dropped: everything read so
// far if it will be refused, otherwise nothing.
func (p *parser) kept(s status) (int, status) {
	if !p.over {
		return 0, s
	}
	n := p.pos
	p.pos = 0
	return n, s
}

// bulkHeader reads the length of an argument.
func (p *parser) bulkHeader(in []byte) status {
	if p.pos == len(in) {
		return partial
	}
	if c := in[p.pos]; c != '$' {
		if c < ' ' || c > '~' {
			return p.fail("expected '$', got byte 0x%02x", c)
		}
		return p.fail("expected '$', got '%c'", c)
	}
	size, n, s := length(in[p.pos:])
	switch {
	case s == partial:
		return partial
	case s == excessive:
		return p.fail("too big bulk count string")
	case s == broken || size < 0 || size > protocolBulk:
		return p.fail("invalid bulk length")
	case p.unauthenticated && size > int64(unauthenticatedCommand-p.pos):
		return p.fail("unauthenticated bulk length")
	case size > int64(p.bounds.bulk):
		p.exceed("an argument has %d bytes, at most %d are allowed", size, p.bounds.bulk)
	case p.pos+n+int(size) > p.bounds.command:
		p.exceed("the command has more than %d bytes", p.bounds.command)
	}
	p.pos, p.bulk = p.pos+n, int(size)
	return complete
}

// length reads a line of a type, a number and CRLF, and returns the number and the
// length of the line. The status is excessive for a line that is too long for a number,
// and broken for one without a number.
func length(in []byte) (value int64, n int, s status) {
	// The common case: one to three digits.
	var v int64
	for i := 1; i < len(in) && i < 5; i++ {
		c := in[i]
		if c >= '0' && c <= '9' {
			v = v*10 + int64(c-'0')
			continue
		}
		if c == '\r' && i > 1 && i+1 < len(in) && in[i+1] == '\n' && (in[1] != '0' || i == 2) {
			return v, i + 2, complete
		}
		break
	}
	end := bytes.IndexByte(in[:min(len(in), longestHeader)], '\n')
	switch {
	case end < 0 && len(in) >= longestHeader:
		return 0, 0, excessive
	case end < 0:
		return 0, 0, partial
	case in[end-1] != '\r': // end is at least 1, after the type
		return 0, 0, broken
	}
	value, ok := integer(in[1 : end-1])
	if !ok || strconv.FormatInt(value, 10) != string(in[1:end-1]) { // as in Redis, no + and no leading 0
		return 0, 0, broken
	}
	return value, end + 1, complete
}

// integer reads a decimal number: an optional sign and digits, and nothing else.
func integer(text []byte) (int64, bool) {
	v, err := strconv.ParseInt(string(text), 10, 64)
	return v, err == nil
}

// inline reads a command in one line, as people type it. The bytes before p.pos are
// known to have no line end.
func (p *parser) inline(in []byte) (int, status) {
	most := protocolInline
	if p.unauthenticated {
		most = unauthenticatedCommand
	}
	end := bytes.IndexByte(in[p.pos:min(len(in), most)], '\n')
	if end < 0 {
		if len(in) >= most {
			return 0, p.fail("too big inline request")
		}
		p.pos = len(in)
		return 0, partial
	}
	end += p.pos
	line := in[:end]
	if end > 0 && line[end-1] == '\r' {
		line = line[:end-1]
	}
	for rest := 0; ; {
		arg, next, ok := p.word(line, rest)
		if !ok {
			return 0, p.fail("unbalanced quotes in request")
		}
		if next < 0 {
			return p.finish(end + 1)
		}
		rest = next
		if len(p.args) >= p.bounds.args {
			p.exceed("the command has more than %d arguments", p.bounds.args)
		} else if size := int(arg.to - arg.from); size > p.bounds.bulk {
			p.exceed("an argument has %d bytes, at most %d are allowed", size, p.bounds.bulk)
		} else if !p.over {
			p.args = append(p.args, arg)
		}
	}
}

// word finds the next word of line from i on, quoted or not, and unescapes it in place,
// where it only gets shorter. next is the position after it, or -1 without a word.
func (p *parser) word(line []byte, i int) (arg span, next int, ok bool) {
	for i < len(line) && isSpace(line[i]) {
		i++
	}
	if i == len(line) {
		return span{}, -1, true
	}
	if c := line[i]; c == '"' || c == '\'' {
		return quoted(line, i)
	}
	from := i
	for i < len(line) && !isSpace(line[i]) {
		if line[i] == '"' || line[i] == '\'' {
			return span{}, 0, false
		}
		i++
	}
	return cut(from, i), i, true
}

// quoted is word for one that starts with the quote at i.
func quoted(line []byte, i int) (arg span, next int, ok bool) {
	quote := line[i]
	from := i + 1
	to := from // end of the unescaped text
	for i = from; i < len(line); to++ {
		c := line[i]
		switch {
		case c == quote:
			i++
			if i < len(line) && !isSpace(line[i]) {
				return span{}, 0, false
			}
			return cut(from, to), i, true
		case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
			line[to], i = '\'', i+2
		case c == '\\' && quote == '"' && i+1 < len(line):
			line[to], i = unescape(line, i+1)
		default:
			line[to], i = c, i+1
		}
	}
	return span{}, 0, false
}

// unescape returns the byte for the escape with its letter at i, and where it ends.
func unescape(line []byte, i int) (byte, int) {
	switch c := line[i]; c {
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case 'b':
		return '\b', i + 1
	case 'a':
		return '\a', i + 1
	case 'x':
		if b, err := hex.DecodeString(string(line[i+1 : min(i+3, len(line))])); err == nil && len(b) == 1 {
			return b[0], i + 3
		}
		return c, i + 1
	default:
		return c, i + 1
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }
