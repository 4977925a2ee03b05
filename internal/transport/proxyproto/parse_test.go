package proxyproto_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/transport/proxyproto"
)

const sig2 = "\r\n\r\n\x00\r\nQUIT\n"

// binaryHeader returns a header of version 2.
func binaryHeader(command, family byte, block string) string {
	return sig2 + string([]byte{command, family}) + string(binary.BigEndian.AppendUint16(nil, uint16(len(block)))) + block
}

const (
	block4 = "\xc6\x33\x64\x07\xc0\x00\x02\x01\x12\x67\x00\x50" // 198.51.100.7:4711 to 192.0.2.1:80
	block6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x12\x67\x01\xbb"
)

// summed appends a field with the correct checksum to a header.
func summed(command, family byte, block string) string {
	b := []byte(binaryHeader(command, family, block+"\x03\x00\x04\x00\x00\x00\x00"))
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(b[len(b)-4:], sum)
	return string(b)
}

func TestParse(t *testing.T) {
	t.Parallel()
	const source, destination = "198.51.100.7:4711", "192.0.2.1:80"
	good := summed(0x21, 0x11, block4)
	broken := good[:20] + "\x00" + good[21:]
	rows := []struct {
		name, in            string
		source, destination string // empty if unknown
		local               bool
		err                 string // part of it
	}{
		{name: "v1, IPv4", in: "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n", source: source, destination: destination},
		{name: "v1, IPv6", in: "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", source: "[2001:db8::1]:1", destination: "[2001:db8::2]:65535"},
		{name: "v1, the longest addresses", in: "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", source: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", destination: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
		{name: "v1, IPv4 in an IPv6 line, as nginx has it", in: "PROXY TCP6 198.51.100.7 192.0.2.1 4711 80\r\n", source: source, destination: destination},
		{name: "v1, IPv4-mapped", in: "PROXY TCP6 ::ffff:198.51.100.7 ::ffff:192.0.2.1 4711 80\r\n", source: source, destination: destination},
		{name: "v1, unknown", in: "PROXY UNKNOWN\r\n"},
		{name: "v1, unknown with anything", in: "PROXY UNKNOWN ffff:f 1 2 3 what\r\n"},
		{name: "v1, IPv6 in an IPv4 line", in: "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", err: "TCP4 address"},
		{name: "v1, a zone", in: "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", err: "TCP6 address"},
		{name: "v1, a leading zero", in: "PROXY TCP4 198.051.100.7 192.0.2.1 1 2\r\n", err: "TCP4 address"},
		{name: "v1, a name", in: "PROXY TCP4 localhost 192.0.2.1 1 2\r\n", err: "TCP4 address"},
		{name: "v1, a port too large", in: "PROXY TCP4 198.51.100.7 192.0.2.1 65536 2\r\n", err: "port"},
		{name: "v1, a port with a zero", in: "PROXY TCP4 198.51.100.7 192.0.2.1 080 2\r\n", err: "port"},
		{name: "v1, a negative port", in: "PROXY TCP4 198.51.100.7 192.0.2.1 -1 2\r\n", err: "port"},
		{name: "v1, a word missing", in: "PROXY TCP4 198.51.100.7 192.0.2.1 80\r\n", err: "3 words"},
		{name: "v1, a word too many", in: "PROXY TCP4 198.51.100.7 192.0.2.1 80 81 82\r\n", err: "5 words"},
		{name: "v1, two spaces", in: "PROXY TCP4  198.51.100.7 192.0.2.1 80 81\r\n", err: "5 words"},
		{name: "v1, UDP", in: "PROXY UDP4 198.51.100.7 192.0.2.1 80 81\r\n", err: "unknown family"},
		{name: "v1, nothing", in: "PROXY \r\n", err: "unknown family"},
		{name: "v1, only LF", in: "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\n", err: "CR LF"},
		{name: "v1, too long", in: "PROXY UNKNOWN " + strings.Repeat("x", 100), err: "longer than 107"},
		{name: "v1, binary", in: "PROXY \x00\xff\r\n", err: "unknown family"},

		{name: "v2, IPv4", in: binaryHeader(0x21, 0x11, block4), source: source, destination: destination},
		{name: "v2, IPv6", in: binaryHeader(0x21, 0x21, block6), source: "[2001:db8::1]:4711", destination: "[2001:db8::2]:443"},
		{name: "v2, a datagram", in: binaryHeader(0x21, 0x12, block4), source: source, destination: destination},
		{name: "v2, fields are skipped", in: binaryHeader(0x21, 0x11, block4+"\x01\x00\x02h2\x04\x00\x00\xee\x00\x01x"), source: source, destination: destination},
		{name: "v2, a right checksum", in: good, source: source, destination: destination},
		{name: "v2, a wrong checksum", in: broken, err: "checksum"},
		{name: "v2, a short checksum", in: binaryHeader(0x21, 0x11, block4+"\x03\x00\x02\x00\x00"), err: "checksum of 2 bytes"},
		{name: "v2, the proxy itself", in: binaryHeader(0x20, 0x00, ""), local: true},
		{name: "v2, the proxy itself, with addresses", in: binaryHeader(0x20, 0x11, block4), local: true},
		{name: "v2, the proxy itself, with half an address", in: binaryHeader(0x20, 0x11, "\x01"), local: true},
		{name: "v2, the proxy itself, with what is no field", in: binaryHeader(0x20, 0x00, "xyz"), local: true},
		{name: "v2, the proxy itself, of an unknown family", in: binaryHeader(0x20, 0x91, "xyz"), local: true},
		{name: "v2, unspecified, with addresses", in: binaryHeader(0x21, 0x00, block4)},
		{name: "v2, unspecified, a wrong checksum", in: binaryHeader(0x21, 0x00, "\x03\x00\x04abcd"), err: "checksum"},
		{name: "v2, the proxy itself, a wrong checksum", in: binaryHeader(0x20, 0x00, "\x03\x00\x04abcd"), err: "checksum"},
		{name: "v2, unspecified", in: binaryHeader(0x21, 0x00, "")},
		{name: "v2, a Unix socket", in: binaryHeader(0x21, 0x31, strings.Repeat("\x00", 216))},
		{name: "v2, a transport left open", in: binaryHeader(0x21, 0x10, block4)},
		{name: "v2, the longest", in: binaryHeader(0x21, 0x11, block4+"\xee\x0f\xf1"+strings.Repeat("x", 4096-15)), source: source, destination: destination},
		{name: "v2, too long", in: binaryHeader(0x21, 0x11, block4+"\xee\x0f\xf2"+strings.Repeat("x", 4096-14)), err: "longer than 4112"},
		{name: "v2, short addresses", in: binaryHeader(0x21, 0x21, block4), err: "12 bytes of addresses"},
		{name: "v2, half a field", in: binaryHeader(0x21, 0x11, block4+"\x01\x00"), err: "inside a field"},
		{name: "v2, a field that leads outside", in: binaryHeader(0x21, 0x11, block4+"\x01\xff\xffx"), err: "inside a field"},
		{name: "v2, version 3", in: binaryHeader(0x31, 0x11, block4), err: "version 3"},
		{name: "v2, a command of the future", in: binaryHeader(0x22, 0x11, block4), err: "unknown command"},
		{name: "v2, a family of the future", in: binaryHeader(0x21, 0x41, block4), err: "unknown family 0x41"},
		{name: "v2, a transport of the future", in: binaryHeader(0x21, 0x13, block4), err: "unknown family 0x13"},

		{name: "none", in: "GET / HTTP/1.1\r\n\r\n", err: "no PROXY header"},
		{name: "nearly", in: "PROXYJ TCP4", err: "no PROXY header"},
		{name: "a method that begins so", in: "PROPFIND / HTTP/1.1\r\n", err: "no PROXY header"},
		{name: "gRPC", in: "PRI * HTTP/2.0\r\n", err: "no PROXY header"},
		{name: "empty lines", in: "\r\n\r\nGET", err: "no PROXY header"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h, n, err := proxyproto.Parse([]byte(row.in + "rest"))
			if row.err != "" {
				if err == nil || errors.Is(err, proxyproto.ErrIncomplete) || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("error %v, want one with %q", err, row.err)
				}
				return
			}
			if err != nil || n != len(row.in) {
				t.Fatalf("length %d of %d, error %v", n, len(row.in), err)
			}
			if text(h.Source) != row.source || text(h.Destination) != row.destination || h.Local != row.local {
				t.Errorf("%s to %s, local %t", text(h.Source), text(h.Destination), h.Local)
			}
			for i := range row.in { // at every place where a packet may end
				if _, need, err := proxyproto.Parse([]byte(row.in[:i])); !errors.Is(err, proxyproto.ErrIncomplete) || need <= i || need > len(row.in) {
					t.Fatalf("of the first %d bytes: needs %d, error %v", i, need, err)
				}
			}
		})
	}
}

func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n", "PROXY UNKNOWN\r\n", binaryHeader(0x21, 0x11, block4),
		summed(0x21, 0x21, block6), binaryHeader(0x20, 0, ""), "GET / HTTP/1.1\r\n\r\n", sig2,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := proxyproto.Parse(b)
		switch {
		case errors.Is(err, proxyproto.ErrIncomplete):
			if n <= len(b) || n > proxyproto.MaxHeader {
				t.Fatalf("%d of %d bytes are needed", n, len(b))
			}
		case err != nil:
			if h.Source.IsValid() {
				t.Fatalf("an address in spite of %v", err)
			}
		default:
			if n < 1 || n > len(b) || n > proxyproto.MaxHeader || h.Local && h.Source.IsValid() {
				t.Fatalf("%d of %d bytes, %+v", n, len(b), h)
			}
			again, m, err := proxyproto.Parse(append(b[:n:n], hex.EncodeToString(b)...))
			if again != h || m != n || err != nil {
				t.Fatalf("what follows matters: %+v, %d, %v", again, m, err)
			}
		}
	})
}
