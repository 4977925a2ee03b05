package queue

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"
)

// A record is "HGQ", the version, the fields with their lengths (as varints), and a CRC-32C of
// all that. The checksum keeps partly written and corrupt records from being sent.
//
// Version 2 has what the request gave of each limit, version 3 also the value that each limit
// of different values counts, version 4 the class of the request, version 5 the owner of its share
// and the owner's weight. A record has the lowest version that holds it, so that older servers can
// read the others.
const (
	magic     = "HGQ"
	newest    = 5
	headSize  = len(magic) + 1
	crcSize   = 4
	maxFields = 1 << 16 // limits the claims, and the header fields, of a record
)

// Marshal returns the record of e.
func (e *Entry) Marshal() []byte {
	size := headSize + int(e.Size()) + 256
	version := byte(1)
	for _, c := range e.Claims {
		size += len(c.Rule) + len(c.Key) + len(c.Given) + len(c.Owner) + 34
		switch {
		case c.Weight != 0 || c.Owner != "":
			version = 5
		case c.Class != 0:
			version = max(version, 4)
		case c.Member != 0:
			version = max(version, 3)
		case c.Given != "":
			version = max(version, 2)
		}
	}
	w := writer{b: append(append(make([]byte, 0, size), magic...), version)}
	for _, text := range [...]string{e.ID, e.Domain, e.Rule, e.Scope, e.Key, e.Method, e.URI, e.Host, e.IdempotencyKey} {
		w.text(text)
	}
	w.number(uint64(max(e.Accepted.UnixMicro(), 0)))
	w.number(uint64(max(e.Expires.UnixMicro(), 0)))
	w.number(uint64(len(e.Claims)))
	for _, c := range e.Claims {
		w.text(c.Rule)
		w.text(c.Key)
		w.number(uint64(max(c.Cost, 0)))
		if version >= 2 {
			w.text(c.Given)
		}
		if version >= 3 {
			w.number(c.Member)
		}
		if version >= 4 {
			w.number(uint64(c.Class))
		}
		if version >= 5 {
			w.text(c.Owner)
			w.number(uint64(max(c.Weight, 0)))
		}
	}
	fields := 0
	for _, values := range e.Header {
		fields += len(values)
	}
	w.number(uint64(fields))
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		for _, value := range e.Header[name] {
			w.text(name)
			w.text(value)
		}
	}
	w.text(string(e.Body))
	return sum(w.b)
}

// sum appends the checksum.
func sum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Unmarshal parses a record. Its errors wrap ErrDamaged. The entry does not refer to b.
func Unmarshal(b []byte) (*Entry, error) {
	if len(b) < headSize+crcSize || string(b[:len(magic)]) != magic || b[len(magic)] == 0 || b[len(magic)] > newest {
		return nil, fmt.Errorf("%w: unknown record version", ErrDamaged)
	}
	version := b[len(magic)]
	body, want := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != want {
		return nil, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	r := reader{b: body[headSize:]}
	e := &Entry{}
	for _, text := range [...]*string{&e.ID, &e.Domain, &e.Rule, &e.Scope, &e.Key, &e.Method, &e.URI, &e.Host, &e.IdempotencyKey} {
		*text = r.text()
	}
	e.Accepted, e.Expires = r.time(), r.time()
	for range r.count() {
		c := Claim{Rule: r.text(), Key: r.text(), Cost: int64(r.number())}
		if version >= 2 {
			c.Given = r.text()
		}
		if version >= 3 {
			c.Member = r.number()
		}
		if version >= 4 {
			c.Class = uint8(min(r.number(), math.MaxUint8))
		}
		if version >= 5 {
			c.Owner, c.Weight = r.text(), int64(r.number())
		}
		e.Claims = append(e.Claims, c)
	}
	e.Header = http.Header{}
	for range r.count() {
		name := r.text()
		e.Header[name] = append(e.Header[name], r.text())
	}
	e.Body = []byte(r.text())
	if r.failed || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: malformed fields", ErrDamaged)
	}
	return e, nil
}

type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

// reader reads fields. After the first bad one all further fields are empty.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<62 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) count() uint64 {
	n := r.number()
	if n > maxFields {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) time() time.Time { return time.UnixMicro(int64(r.number())).UTC() }

func (r *reader) fail() { r.failed, r.b = true, nil }
