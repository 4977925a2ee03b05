// Package proxyproto implements the receiving side of the PROXY protocol, versions 1 and
// 2: a load balancer that forwards connections sends the address of the client in the
// first bytes of each.
//
// See https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt. Existing packages do
// not check the checksum of version 2, require the header in a single packet, or are
// configured by global variables.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"

	maxLine = 107 // the longest header of version 1 with its CRLF
	fixed   = 16  // the fixed part of a header of version 2
	// MaxHeader is the length of the longest accepted header, in bytes. Version 2 allows
	// 64 KiB; the longest part in use, a certificate, has 2 KiB.
	MaxHeader = fixed + 4<<10
)

// Errors of [Parse]. Other errors describe an invalid header.
var (
	ErrIncomplete = errors.New("the PROXY header is incomplete") // more bytes are needed
	ErrNoHeader   = errors.New("no PROXY header")                // the bytes do not start with a header
)

// Header is the information about a connection in a PROXY header.
type Header struct {
	Version             int            // 1 or 2
	Local               bool           // a connection of the proxy itself, such as a health check; it has no addresses
	Source, Destination netip.AddrPort // the ends of the client's connection; invalid if unknown or not IP
}

// Parse reads the header at the start of b and returns its length. With ErrIncomplete,
// the length is how many bytes are needed at least.
func Parse(b []byte) (h Header, length int, err error) {
	switch {
	case begins(b, signature1):
		return parse1(b)
	case begins(b, signature2):
		return parse2(b)
	}
	return Header{}, 0, ErrNoHeader
}

// begins reports whether b starts with prefix, or might if it were longer.
func begins(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

// parse1 reads a line such as "PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n".
func parse1(b []byte) (Header, int, error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	if end < 0 {
		if len(b) >= maxLine {
			return Header{}, 0, fmt.Errorf("the PROXY line is longer than %d bytes", maxLine)
		}
		return Header{}, len(b) + 1, ErrIncomplete
	}
	line, ok := strings.CutSuffix(string(b[:end]), "\r")
	if !ok {
		return Header{}, 0, errors.New("the PROXY line does not end with CR LF")
	}
	h, err := parseLine(line[len(signature1):])
	return h, end + 1, err
}

func parseLine(line string) (Header, error) {
	h := Header{Version: 1}
	family, rest, _ := strings.Cut(line, " ")
	if family == "UNKNOWN" {
		return h, nil // the rest must be ignored
	}
	words := strings.Split(rest, " ")
	if family != "TCP4" && family != "TCP6" {
		return h, fmt.Errorf("unknown family %q in the PROXY line", family)
	}
	if len(words) != 4 {
		return h, fmt.Errorf("the PROXY line has %d words after %s, want 4", len(words), family)
	}
	var err error
	if h.Source, err = lineAddress(family, words[0], words[2]); err != nil {
		return Header{}, err
	}
	if h.Destination, err = lineAddress(family, words[1], words[3]); err != nil {
		return Header{}, err
	}
	return h, nil
}

// lineAddress reads an address and its port. nginx writes IPv4 addresses in TCP6 lines if
// the families of both sides differ, so they are accepted.
func lineAddress(family, address, port string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil || addr.Zone() != "" || family == "TCP4" && !addr.Is4() {
		return netip.AddrPort{}, fmt.Errorf("%q in the PROXY line is not a %s address", address, family)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, fmt.Errorf("%q in the PROXY line is not a port", port)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// The address families of version 2.
const (
	unspecified = 0x0
	inet        = 0x1
	inet6       = 0x2
	unix        = 0x3
)

// parse2 reads a binary header.
func parse2(b []byte) (Header, int, error) {
	if len(b) < len(signature2) {
		return Header{}, len(b) + 1, ErrIncomplete // it may not be a header
	}
	if len(b) < fixed {
		return Header{}, fixed, ErrIncomplete
	}
	command, family, transport := b[12], b[13]>>4, b[13]&0xf
	switch {
	case command>>4 != 2:
		return Header{}, 0, fmt.Errorf("unsupported version %d of the PROXY header", command>>4)
	case command&0xf > 1:
		return Header{}, 0, fmt.Errorf("unknown command %d in the PROXY header", command&0xf)
	case command&0xf == 1 && (family > unix || transport > 2): // of a local one it is ignored
		return Header{}, 0, fmt.Errorf("unknown family %#02x in the PROXY header", b[13])
	}
	length := fixed + int(binary.BigEndian.Uint16(b[14:fixed]))
	if length > MaxHeader {
		return Header{}, 0, fmt.Errorf("the PROXY header is longer than %d bytes", MaxHeader)
	}
	if len(b) < length {
		return Header{}, length, ErrIncomplete
	}
	h := Header{Version: 2, Local: command&0xf == 0}
	block := b[fixed:length]
	if h.Local || family == unspecified { // what follows is ignored, but for a wrong checksum
		if err := checkFields(b[:length], fixed+min(sizeOf(family), len(block))); err != nil && !errors.Is(err, errCut) {
			return Header{}, 0, err
		}
		return h, length, nil
	}
	size := sizeOf(family)
	if len(block) < size {
		return Header{}, 0, fmt.Errorf("the PROXY header has %d bytes of addresses, want %d", len(block), size)
	}
	if err := checkFields(b[:length], fixed+size); err != nil {
		return Header{}, 0, err
	}
	if transport != 0 {
		h.addresses(family, block)
	}
	return h, length, nil
}

// errCut is the error of a header whose length is that of no field.
var errCut = errors.New("the PROXY header ends inside a field")

// sizeOf returns the size of the addresses of a family.
func sizeOf(family byte) int {
	switch family {
	case inet:
		return 12
	case inet6:
		return 36
	case unix:
		return 216
	}
	return 0
}

// addresses reads the addresses at the start of block, which is long
// enough for the family's. Names of Unix sockets say nothing about a client.
func (h *Header) addresses(family byte, block []byte) {
	switch family {
	case inet:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(block[:4])), binary.BigEndian.Uint16(block[8:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(block[4:8])), binary.BigEndian.Uint16(block[10:]))
	case inet6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(block[:16])).Unmap(), binary.BigEndian.Uint16(block[32:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(block[16:32])).Unmap(), binary.BigEndian.Uint16(block[34:]))
	}
}

// checksum is the type of the field with a CRC32C of the whole header.
const checksum = 0x03

// checkFields walks the fields (type, length, value) that start at an offset
// in header, and checks the checksum if there is one.
func checkFields(header []byte, from int) error {
	for rest := header[from:]; len(rest) > 0; {
		if len(rest) < 3 {
			return errCut
		}
		end := 3 + int(binary.BigEndian.Uint16(rest[1:3]))
		if len(rest) < end {
			return errCut
		}
		if rest[0] == checksum {
			at := len(header) - len(rest) + 3
			if err := checkSum(header, at, end-3); err != nil {
				return err
			}
		}
		rest = rest[end:]
	}
	return nil
}

// checkSum compares the checksum in size bytes at an offset with that of header
// where these bytes are zero.
func checkSum(header []byte, at, size int) error {
	if size != crc32.Size {
		return fmt.Errorf("the PROXY header has a checksum of %d bytes, want %d", size, crc32.Size)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, header[:at])
	sum = crc32.Update(sum, table, make([]byte, crc32.Size))
	sum = crc32.Update(sum, table, header[at+crc32.Size:])
	if sum != binary.BigEndian.Uint32(header[at:]) {
		return errors.New("the checksum of the PROXY header is wrong")
	}
	return nil
}
