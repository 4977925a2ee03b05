package resp

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// transcript feeds input to a parser in pieces whose sizes come from cuts, and returns
// the results. It fails if the parser keeps more than its bounds allow.
func transcript(t *testing.T, input []byte, stranger bool, cuts []byte) string {
	t.Helper()
	p := parser{bounds: bounds{args: 8, bulk: 64, command: 256}, unauthenticated: stranger}
	var out strings.Builder
	var buffer []byte
	for round := 0; len(input) > 0; round++ {
		n := len(input)
		if len(cuts) > 0 {
			n = min(n, int(cuts[round%len(cuts)])%31+1)
		}
		buffer, input = append(buffer, input[:n]...), input[n:]
		for {
			done, s := p.next(buffer)
			if done < 0 || done > len(buffer) {
				t.Fatalf("done with %d of %d bytes", done, len(buffer))
			}
			switch s {
			case complete:
				for _, a := range p.args {
					fmt.Fprintf(&out, "%q ", buffer[a.from:a.to])
				}
				out.WriteString(".\n")
			case excessive:
				out.WriteString(p.complaint + ".\n")
			case broken:
				return out.String() + p.complaint
			case partial:
			}
			buffer = slices.Clone(buffer[done:])
			if s == partial {
				break
			}
		}
		if most := protocolInline + 31; len(buffer) > most {
			t.Fatalf("%d bytes are kept", len(buffer))
		}
		if cap(p.args) > 64 {
			t.Fatalf("room for %d arguments is kept", cap(p.args))
		}
	}
	return out.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 65)
	many := strings.Repeat("$1\r\na\r\n", 9)
	tests := []struct{ input, want string }{
		{"*2\r\n$4\r\nPING\r\n$0\r\n\r\n", "\"PING\" \"\" .\n"},
		{"*1\r\n$4\r\nPI\r\n\r\n", "\"PI\\r\\n\" .\n"},
		{"*0\r\n*-7\r\n\r\n\nPING\n", ".\n.\n.\n.\n\"PING\" .\n"},
		// These exceed the configured limits, but the next command is found.
		{"*2\r\n$65\r\n" + long + "\r\n$1\r\na\r\nPING\r\n", "ERR an argument has 65 bytes, at most 64 are allowed.\n\"PING\" .\n"},
		{"*9\r\n" + many + "PING\r\n", "ERR the command has 9 arguments, at most 8 are allowed.\n\"PING\" .\n"},
		{"*5\r\n" + strings.Repeat("$64\r\n"+long[1:]+"\r\n", 5) + "PING\r\n", "ERR the command has more than 256 bytes.\n\"PING\" .\n"},
		{long + "\r\nPING\r\n", "ERR an argument has 65 bytes, at most 64 are allowed.\n\"PING\" .\n"},
		{strings.Repeat("a ", 9) + "\r\nPING\r\n", "ERR the command has more than 8 arguments.\n\"PING\" .\n"},
		// After these the start of the next command is unknown.
		{"*1000000000\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*1048577\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*1\n$1\r\na\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*1 \r\n", "ERR Protocol error: invalid multibulk length"},
		{"*9223372036854775808\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*" + strings.Repeat("1", 40), "ERR Protocol error: too big mbulk count string"},
		{"*1\r\n$" + strings.Repeat("1", 40), "ERR Protocol error: too big bulk count string"},
		{"*+1\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*01\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*-0\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*00000000001\r\n", "ERR Protocol error: invalid multibulk length"},
		{"*1\r\n$+1\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n$04\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n$00\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n$536870913\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n$\r\n", "ERR Protocol error: invalid bulk length"},
		{"*1\r\n+PING\r\n", "ERR Protocol error: expected '$', got '+'"},
		{"*1\r\n\x00", "ERR Protocol error: expected '$', got byte 0x00"},
		{"*1\r\n$4\r\nPINGPONG", "ERR Protocol error: expected CRLF after an argument"},
		{"*1\r\n$65\r\n" + long + "yz", "ERR Protocol error: expected CRLF after an argument"},
		{"PING \"a\r\n", "ERR Protocol error: unbalanced quotes in request"},
		{strings.Repeat("x", protocolInline), "ERR Protocol error: too big inline request"},
	}
	for _, test := range tests {
		for _, cuts := range [][]byte{nil, {0}, {2}, {6, 1}} {
			if got := transcript(t, []byte(test.input), false, cuts); got != test.want {
				t.Errorf("%.50q in pieces of %v\n got %q\nwant %q", test.input, cuts, got, test.want)
			}
		}
	}
}

func TestParseStrangers(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"*11\r\n":                       "ERR Protocol error: unauthenticated multibulk length",
		"*2\r\n$4\r\nAUTH\r\n$4096\r\n": "ERR Protocol error: unauthenticated bulk length",
		strings.Repeat("x", unauthenticatedCommand): "ERR Protocol error: too big inline request",
		"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n":           "\"AUTH\" \"x\" .\n",
	} {
		if got := transcript(t, []byte(input), true, nil); got != want {
			t.Errorf("%.50q: %q, want %q", input, got, want)
		}
	}
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "+", "-", "0", "-0", "+0", "7", "-7", "+7", "007", " 7", "7 ", "7.0", "1e3", "0x7", "1_000", "--7", "٣",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"99999999999999999999", "-99999999999999999999", "18446744073709551616",
	} {
		got, ok := integer([]byte(text))
		want, err := strconv.ParseInt(text, 10, 64)
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %d %t, want %d %v", text, got, ok, want, err)
		}
	}
}

func FuzzInteger(f *testing.F) {
	f.Add("-9223372036854775808")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := integer([]byte(text))
		want, err := strconv.ParseInt(text, 10, 64)
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %d %t, want %d %v", text, got, ok, want, err)
		}
	})
}

// The parser finds the same commands wherever the input is cut.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$4\r\nPING\r\n$1\r\na\r\n", "PING \"a\\x41\\n\" 'b'\r\n", "*1000000000\r\n", "*1\r\n$536870912\r\naaaa",
		"*9\r\n$1\r\na\r\n", "*1\r\n$70\r\n", "*-1\r\n\r\n*1\r\n$0\r\n\r\n", "\x00\xff\r\n*1\r\n$1\r\n\xff\r\n", "*1\r\n$4\r\nPIN",
	} {
		f.Add([]byte(seed), []byte{3, 1, 7}, false)
		f.Add([]byte(seed), []byte{0}, true)
	}
	f.Fuzz(func(t *testing.T, input, cuts []byte, stranger bool) {
		if len(input) > 1<<17 {
			return
		}
		whole := transcript(t, input, stranger, nil)
		if pieces := transcript(t, input, stranger, slices.Concat(cuts, []byte{1})); pieces != whole {
			t.Errorf("%.200q\n  whole %q\n pieces %q", input, whole, pieces)
		}
	})
}

// The limit has exactly the requested rate, or there is an error.
func FuzzMakeLimit(f *testing.F) {
	f.Add(int64(15), int64(30), int64(60))
	f.Add(int64(math.MaxInt64), int64(1), int64(math.MaxInt64))
	f.Add(int64(1<<40-1), int64(1), int64(1<<25))
	f.Fuzz(func(t *testing.T, burst, count, period int64) {
		l, err := makeLimit(burst, count, period)
		if err != nil {
			return
		}
		if l.Burst() != burst+1 {
			t.Fatalf("capacity %d for a burst of %d", l.Burst(), burst)
		}
		got := big.NewRat(l.N(), l.Period().Microseconds())
		want := new(big.Rat).Mul(big.NewRat(count, period), big.NewRat(1, 1_000_000))
		if got.Cmp(want) != 0 {
			t.Fatalf("%d per %d s is %s", count, period, l)
		}
	})
}
