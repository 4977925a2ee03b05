package resp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
)

// The bounds of the protocol itself: what exceeds them is no Redis protocol,
// and the connection ends. They are those of Redis.
const (
	protocolArgs   = 1 << 20
	protocolBulk   = 512 << 20
	protocolInline = 64 << 10
	// A stranger's command needs no more to say who he is.
	strangerArgs    = 10
	strangerCommand = 4 << 10
	// longestHeader is the longest line that tells a length, with its end:
	// a type, a sign, 19 digits and some zeros before them.
	longestHeader = 32
)

// span is where an argument lies, counted from the first byte of its command.
type span struct{ from, to uint32 }

func (s span) end() int { return int(s.to) }

// spanSize is what a span takes, in bytes.
const spanSize = 8

// cut returns the span from one byte to another. No command is longer than
// protocolBulk allows by far, so that they fit.
func cut(from, to int) span { return span{uint32(from), uint32(to)} }

// bounds are the limits on a command of a well-behaved client. One that exceeds
// them is read to its end, forgotten and refused, and the connection goes on.
type bounds struct{ args, bulk, command int }

// status is what parser.next has found.
type status uint8

const (
	partial   status = iota // the command goes on beyond the input
	complete                // args has the command, or nothing if it is empty
	excessive               // the command has ended, but exceeds the bounds; complaint says how
	broken                  // this is no command, nor can be told where one would begin; complaint says why
)

// parser cuts the input of one connection into commands. It keeps its place
// inside of a command, so that input that arrives byte by byte is read once.
type parser struct {
	bounds   bounds
	stranger bool // true before AUTH, if there is a password

	args      []span // the arguments of the command that has just been completed
	complaint string // for the client, if there is something to complain of

	pos  int // next byte to read, from the first of the command
	left int // arguments still to come; 0 between commands
	bulk int // bytes of the argument still to come, or noBulk
	over bool
}

// noBulk means that the next thing to come is the header of an argument.
const noBulk = -1

// next looks for a command at the beginning of in and returns how many bytes
// are done with: the whole command or, of a partial one, what need not be kept
// and must not be shown again.
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

// fail ends the connection with a complaint.
func (p *parser) fail(format string, a ...any) status {
	p.complaint = "ERR Protocol error: " + fmt.Sprintf(format, a...)
	return broken
}

// exceed notes that the command will be refused, and forgets it.
func (p *parser) exceed(format string, a ...any) {
	if !p.over {
		p.over, p.complaint = true, "ERR "+fmt.Sprintf(format, a...)
	}
	p.args = p.args[:0]
}

// refuse lets the command that is arriving be refused at its end, and its bytes be
// let go of. It reports false if it is not known where that will be.
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

// header reads how many arguments there are.
func (p *parser) header(in []byte) (int, status) {
	count, n, s := length(in)
	switch {
	case s == partial:
		return 0, partial
	case s == excessive:
		return 0, p.fail("too big mbulk count string")
	case s == broken || count > protocolArgs:
		return 0, p.fail("invalid multibulk length")
	case p.stranger && count > strangerArgs:
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
		if p.over { // do away with what there is of it
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

// kept returns how much of a command that is not complete can be let go: of one
// that is being forgotten, all that was read.
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
	case p.stranger && size > int64(strangerCommand-p.pos):
		return p.fail("unauthenticated bulk length")
	case size > int64(p.bounds.bulk):
		p.exceed("an argument has %d bytes, at most %d are allowed", size, p.bounds.bulk)
	case p.pos+n+int(size) > p.bounds.command:
		p.exceed("the command has more than %d bytes", p.bounds.command)
	}
	p.pos, p.bulk = p.pos+n, int(size)
	return complete
}

// length reads a line of a type, a number and CRLF, and returns the number and
// the length of the line. The status is excessive for a line that is too long
// to hold a number, and broken for one that holds none.
func length(in []byte) (value int64, n int, s status) {
	// The common case: one to three digits.
	var v int64
	for i := 1; i < len(in) && i < 5; i++ {
		c := in[i]
		if c >= '0' && c <= '9' {
			v = v*10 + int64(c-'0')
			continue
		}
		if c == '\r' && i > 1 && i+1 < len(in) && in[i+1] == '\n' {
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
	case in[end-1] != '\r': // there is a type before it
		return 0, 0, broken
	}
	value, ok := integer(in[1 : end-1])
	if !ok {
		return 0, 0, broken
	}
	return value, end + 1, complete
}

// integer reads a signed decimal number: an optional sign and digits, and
// nothing else.
func integer(text []byte) (int64, bool) {
	v, err := strconv.ParseInt(string(text), 10, 64)
	return v, err == nil
}

// inline reads a command in one line, as people type it. p.pos is how much is
// known to have no end of line.
func (p *parser) inline(in []byte) (int, status) {
	most := protocolInline
	if p.stranger {
		most = strangerCommand
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

// word finds the next word of line from i on, quoted or not, and unescapes it
// in place, where it only gets shorter. next is behind it, or -1 if there is
// none.
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

// quoted is word for one that begins with the quote at i.
func quoted(line []byte, i int) (arg span, next int, ok bool) {
	quote := line[i]
	from := i + 1
	to := from // of what is unescaped
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

// unescape returns what the escape with its letter at i stands for, and where
// it ends.
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
