package memory

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/base/atomicfile"
)

// A snapshot is a magic number followed by frames. All numbers are little-endian:
//
//	8 bytes   "HGMEM", 0, 0 and the version, 2
//	frames    uint32 length, uint32 CRC-32C of the payload, payload
//
// The payload starts with its kind:
//
//	'H'  the first: int64 time of saving, the 6 words of the secret
//	'S'  slots, 4 words each
//	'R'  a record: slot, algorithm (1 byte), and of algorithm.Unpacked: V, credit,
//	     until, the list
//	'E'  the last: uint64 number of keys
//
// Every frame of slots belongs to one shard and is written under its lock. A snapshot
// does not depend on the number of shards: identity.extra says where a slot belongs.
const (
	magic       = "HGMEM\x00\x00\x02"
	frameHeader = 'H'
	frameSlots  = 'S'
	frameRecord = 'R'
	frameEnd    = 'E'
	// recordHead is a record's payload without its list.
	recordHead = 1 + slotBytes + 1 + 8*6
)

// ErrDamagedSnapshot is wrapped by the errors of Load and LoadFile if the data is not a
// complete snapshot.
var ErrDamagedSnapshot = errors.New("damaged snapshot")

// errInUse is returned by Load for a store that has been used.
var errInUse = errors.New("memory: a snapshot can only be loaded into an empty store")

func damaged(format string, args ...any) error {
	return fmt.Errorf("memory: %w: %s", ErrDamagedSnapshot, fmt.Sprintf(format, args...))
}

// Save writes a snapshot of every key that is not fresh. Requests continue: it blocks
// one shard at a time, while it copies it.
func (s *Store) Save(w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	now := s.clock.now()
	header := binary.LittleEndian.AppendUint64([]byte{frameHeader}, uint64(now))
	for _, k := range s.secret {
		header = binary.LittleEndian.AppendUint64(header, k)
	}
	if _, err := out.WriteString(magic); err != nil {
		return err
	}
	if err := writeFrame(out, header); err != nil {
		return err
	}
	var keys uint64
	var copied copied
	for i := range s.shards {
		h := s.lock(uint64(i), now)
		keys += copied.take(h, now)
		h.mu.Unlock()
		if err := copied.write(out); err != nil {
			return err
		}
	}
	if err := writeFrame(out, binary.LittleEndian.AppendUint64([]byte{frameEnd}, keys)); err != nil {
		return err
	}
	return out.Flush()
}

// copied is the payload of one shard. Its buffers are reused for the next.
type copied struct {
	slots   []byte
	records []byte
	ends    []int // of each record in records
}

// take copies everything that is not fresh and returns the number of keys.
func (c *copied) take(h *shard, now int64) (keys uint64) {
	c.slots = append(c.slots[:0], frameSlots)
	c.records, c.ends = c.records[:0], c.ends[:0]
	for _, slots := range [][]slot{h.slots, h.waiting} {
		for i := range slots {
			p := &slots[i]
			if p.tag == 0 || p.freshAt() <= now {
				continue
			}
			keys++
			if p.codec() != codecRecord {
				c.slots = appendSlot(c.slots, p)
				continue
			}
			c.records = h.lists.appendRecord(append(c.records, frameRecord), p)
			c.ends = append(c.ends, len(c.records))
		}
	}
	return keys
}

func (c *copied) write(w io.Writer) error {
	if len(c.slots) > 1 {
		if err := writeFrame(w, c.slots); err != nil {
			return err
		}
	}
	begin := 0
	for _, end := range c.ends {
		if err := writeFrame(w, c.records[begin:end]); err != nil {
			return err
		}
		begin = end
	}
	return nil
}

func appendSlot(b []byte, p *slot) []byte {
	for _, word := range [...]uint64{p.tag, p.a, p.b, p.c} {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return b
}

func (l *lists) appendRecord(b []byte, p *slot) []byte {
	at, saved := place(p.a), *p
	saved.a = 0
	b = append(appendSlot(b, &saved), byte(at.algorithm()))
	var st algorithm.State
	l.state(at, &st)
	u := st.Unpack(at.algorithm(), nil)
	for _, v := range u.V {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(u.Credit))
	b = binary.LittleEndian.AppendUint64(b, uint64(u.Until))
	for _, v := range u.List {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func writeFrame(w io.Writer, payload []byte) error {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:4], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// Load reads a snapshot into an empty store. Call it before the store is used.
// WithMaxKeys and WithMaxBytes may differ from those of the saved store; keys that do
// not fit are evicted as usual.
//
// If the snapshot is damaged, the error wraps [ErrDamagedSnapshot] and the store stays
// empty. If it was saved in the future of this machine's clock, everything in it is
// moved back by the difference. Keys whose count starts more than a minute after the
// time of saving are moved back to it. So no client stays locked out because a clock
// was wrong.
func (s *Store) Load(r io.Reader) error {
	if s.keys.Load() != 0 {
		return errInUse
	}
	// Into another store, so that nothing is loaded if the end is damaged.
	into := &Store{
		shards: make([]shard, len(s.shards)), maxKeys: s.maxKeys, maxBytes: s.maxBytes,
	}
	into.prepare()
	l := loader{store: into, now: s.clock.now(), in: bufio.NewReaderSize(r, 64<<10)}
	if err := l.load(); err != nil {
		return err
	}
	s.secret = into.secret
	s.keys.Store(into.keys.Load())
	s.bytes.Store(into.bytes.Load())
	for i := range s.shards {
		h, from := s.lock(uint64(i), l.now), &into.shards[i]
		h.setTable(s, from.table)
		h.waiting, h.next = from.waiting, from.next
		h.lists, h.ranking, h.counts = from.lists, from.ranking, from.counts
		s.hints[i].hot.Store(nil)
		h.mu.Unlock()
	}
	return nil
}

// loader reads one snapshot.
type loader struct {
	store *Store
	in    *bufio.Reader
	now   int64
	back  int64 // by how much to move times back
	saved int64 // when it was saved
	keys  uint64
	frame bytes.Buffer
}

func (l *loader) load() error {
	var start [len(magic)]byte
	if _, err := io.ReadFull(l.in, start[:]); err != nil {
		return ended(err, "it is too short")
	}
	if string(start[:5]) != magic[:5] {
		return damaged("this is not a snapshot")
	}
	if string(start[:]) != magic {
		return damaged("it has version %d, this program reads version %d", start[len(magic)-1], magic[len(magic)-1])
	}
	kind, payload, err := l.next()
	if err != nil {
		return err
	}
	if kind != frameHeader || len(payload) < 8*(1+len(secret{})) {
		return damaged("the header is missing")
	}
	saved := int64(binary.LittleEndian.Uint64(payload))
	if saved < 0 || saved > timeMask {
		return damaged("the time of saving is out of range")
	}
	l.saved, l.back = saved, max(saved-l.now, 0)
	for i := range l.store.secret {
		l.store.secret[i] = binary.LittleEndian.Uint64(payload[8*(1+i):])
	}
	for {
		kind, payload, err := l.next()
		if err != nil {
			return err
		}
		switch kind {
		case frameSlots:
			err = l.slots(payload)
		case frameRecord:
			err = l.record(payload)
		case frameEnd:
			if len(payload) != 8 || binary.LittleEndian.Uint64(payload) != l.keys {
				return damaged("the number of keys does not match")
			}
			return nil
		default:
			return damaged("unknown section %q", kind)
		}
		if err != nil {
			return err
		}
	}
}

// next reads a frame. Its memory grows with the data received, not with the claimed
// length.
func (l *loader) next() (kind byte, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return 0, nil, ended(err, "the end is missing")
	}
	length := int64(binary.LittleEndian.Uint32(head[:4]))
	if length == 0 {
		return 0, nil, damaged("a section is empty")
	}
	l.frame.Reset()
	if _, err := io.CopyN(&l.frame, l.in, length); err != nil {
		return 0, nil, ended(err, "the end is missing")
	}
	payload = l.frame.Bytes()
	if crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, damaged("checksum mismatch")
	}
	return payload[0], payload[1:], nil
}

// ended distinguishes a truncated snapshot from one that cannot be read.
func ended(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("%s", what)
	}
	return fmt.Errorf("memory: reading a snapshot: %w", err)
}

func (l *loader) slots(payload []byte) error {
	if len(payload)%slotBytes != 0 {
		return damaged("a section has an invalid length")
	}
	for ; len(payload) > 0; payload = payload[slotBytes:] {
		p, ok := readSlot(payload)
		if !ok || p.codec() == codecRecord {
			return damaged("a key is invalid")
		}
		l.keys++
		p.moveBack(l.backFor(p.begins()))
		l.put(p)
	}
	return nil
}

// mostAhead is how long after the time of saving a count may start, in microseconds:
// counting continues while a snapshot is written.
const mostAhead = 60_000_000

// backFor returns by how much to move back a count that starts at begins. A count that
// starts in the future was made with a wrong clock.
func (l *loader) backFor(begins int64) int64 {
	if begins <= l.saved+mostAhead {
		return l.back
	}
	return l.back + begins - l.saved
}

func (l *loader) record(payload []byte) error {
	if len(payload) < recordHead-1 || (len(payload)-(recordHead-1))%8 != 0 {
		return damaged("a section has an invalid length")
	}
	p, ok := readSlot(payload)
	rec := readRecord(payload[slotBytes:])
	if !ok || p.codec() != codecRecord || !rec.possible() {
		return damaged("a key is invalid")
	}
	l.keys++
	back := l.backFor(begins(rec.algorithm, &rec.V))
	rec.moveBack(back)
	p.moveBack(back)
	h := l.store.shard(p.identity())
	if p.freshAt() <= l.now || h.lookup(p.identity()) != nil {
		return nil
	}
	st := rec.Pack(rec.algorithm)
	p.a = uint64(h.add(l.store, rec.algorithm, &st))
	l.put(p)
	if l.store.bytes.Load() > l.store.maxBytes {
		l.store.reclaim(l.now)
	}
	return nil
}

// put stores a slot.
func (l *loader) put(p slot) {
	if p.freshAt() <= l.now {
		return
	}
	h := l.store.shard(p.identity())
	if h.lookup(p.identity()) != nil {
		return // only a forged snapshot has a key twice
	}
	if !h.place(l.store, p, l.now) {
		h.wait(l.store, p, l.now)
	}
}

func readSlot(b []byte) (p slot, ok bool) {
	p.tag = binary.LittleEndian.Uint64(b)
	p.a = binary.LittleEndian.Uint64(b[8:])
	p.b = binary.LittleEndian.Uint64(b[16:])
	p.c = binary.LittleEndian.Uint64(b[24:])
	return p, p.tag != 0 && (p.codec() != codecRecord || p.b <= 1<<53)
}

// SaveFile writes a snapshot to path. It first writes path.new, readable only by its
// owner, and then renames it, so that path always has either the complete old or the
// complete new snapshot. A symbolic link at path is replaced, not followed, and so is
// anything at path.new.
func (s *Store) SaveFile(path string) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := atomicfile.WriteBy(path, s.Save); err != nil {
		return fmt.Errorf("memory: saving a snapshot: %w", err)
	}
	return nil
}

// LoadFile reads the snapshot at path; see [Store.Load]. If it does not exist, the
// error wraps fs.ErrNotExist. If it is damaged, the error wraps [ErrDamagedSnapshot],
// and [SetAside] moves it out of the way.
func (s *Store) LoadFile(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		// A device must not be set aside, and a FIFO not be waited for.
		return fmt.Errorf("memory: loading a snapshot: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("memory: loading a snapshot: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := s.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// SetAside renames the snapshot at path, so that the next SaveFile does not overwrite
// it, and returns its new name: path.damaged, path.damaged-2 and so on.
func SetAside(path string) (string, error) {
	to := path + ".damaged"
	for i := 2; ; i++ {
		if _, err := os.Lstat(to); err != nil {
			break // it does not exist; other errors are left to Rename
		}
		to = fmt.Sprintf("%s.damaged-%d", path, i)
	}
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("memory: moving a damaged file aside: %w", err)
	}
	return to, nil
}
