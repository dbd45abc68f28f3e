package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/internal/cow"
	"github.com/kvonce/kvonce/registry"
)

// A snapshot is the magic and version, then records as (kind, length, bytes): the head first, then the tables in
// the order of their keys, then an end record (kind 0) with the number of records and the digest; then the XXH64 of
// everything before it.
const snapshotMagic = "KVONCE\x00\x01"

const (
	kindEnd = 0
	// maxRecord bounds a record before it is allocated: the largest answer is below it.
	maxRecord = 64 * mib
)

// errSnapshot is wrapped by every error about the content of a snapshot.
var errSnapshot = errors.New("snapshot is damaged")

// WriteSnapshot streams the state to w. It recomputes the digest from what it writes, and fails when that isn't the
// digest that was kept while the state changed: a state that is damaged in memory must not be passed on. The state
// must not change meanwhile; give it a Copy.
func (s *State) WriteSnapshot(w io.Writer) error {
	out := &snapshotWriter{w: bufio.NewWriterSize(w, 1<<18), sum: xxhash.New()}
	out.write([]byte(snapshotMagic))
	head := s.appendHead(nil)
	out.record(kindHead, append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.index), s.term), head...))
	out.digest = cow.Hash(kindHead, head)
	s.nodes.Scan(func(n *Node) bool { return out.row(kindNode, n) })
	s.keys.keys.Scan(func(r *record) bool { return out.row(kindKey, r) })
	s.clients.Records(out.row)
	if out.err == nil && out.digest != s.Digest() {
		return fmt.Errorf("digest of the records is %016x, the state says %016x: memory is damaged", out.digest, s.Digest())
	}
	return out.end()
}

type snapshotWriter struct {
	w       *bufio.Writer
	sum     hash.Hash64
	head    []byte // scratch for kind and length of a record
	scratch []byte
	rows    uint64
	digest  uint64
	err     error
}

func (o *snapshotWriter) write(b []byte) {
	if o.err != nil {
		return
	}
	_, _ = o.sum.Write(b) // a hash never fails
	_, o.err = o.w.Write(b)
}

func (o *snapshotWriter) record(kind byte, b []byte) {
	o.head = binary.AppendUvarint(append(o.head[:0], kind), uint64(len(b)))
	o.write(o.head)
	o.write(b)
}

// row writes a record of a table. It goes on as long as the writer has no error.
func (o *snapshotWriter) row(kind byte, r cow.Record) bool {
	o.scratch = r.Append(o.scratch[:0])
	o.digest += cow.Hash(kind, o.scratch)
	o.rows++
	o.record(kind, o.scratch)
	return o.err == nil
}

func (o *snapshotWriter) end() error {
	o.record(kindEnd, binary.BigEndian.AppendUint64(canon.AppendUint(nil, o.rows), o.digest))
	o.write(binary.BigEndian.AppendUint64(nil, o.sum.Sum64()))
	if o.err == nil {
		o.err = o.w.Flush()
	}
	return o.err
}

// ReadSnapshot makes the state that a snapshot holds. It reads to the end, checks order, checksum and digest, and
// returns nothing of a snapshot that is damaged or of another version.
func ReadSnapshot(r io.Reader) (*State, error) {
	in := &snapshotReader{r: bufio.NewReaderSize(r, 1<<18), sum: xxhash.New()}
	if magic := in.read(len(snapshotMagic)); in.err == nil && string(magic) != snapshotMagic {
		return nil, errors.New("not a snapshot, or one of an unknown version")
	}
	s := New()
	kind, head := in.record()
	if in.err == nil && kind != kindHead {
		in.fail("the head is missing")
	}
	in.check(s.loadHead(head))
	for in.err == nil {
		kind, b := in.record()
		if kind == kindEnd && in.err == nil {
			if in.end(b, s.Digest()) != nil {
				break
			}
			return s, nil
		}
		in.rows++
		in.order(kind)
		in.check(s.loadRecord(kind, b))
	}
	return nil, in.err
}

func (s *State) loadHead(b []byte) error {
	if len(b) < 16 {
		return canon.ErrShort
	}
	s.index, s.term = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	r := canon.NewReader(b[16:])
	s.time, s.wall, s.keys.revision = r.Uint(), r.Uint(), r.Uint()
	s.clients.SetLastID(r.Uint())
	s.born = r.Bool()
	g := decodeGenesis(r)
	s.clusterName, s.incarnation, s.settings = g.ClusterName, g.Incarnation, g.Settings
	return r.Done()
}

func (s *State) loadRecord(kind byte, b []byte) error {
	switch kind {
	case kindNode:
		r := canon.NewReader(b)
		n := decodeNode(r)
		if err := r.Done(); err != nil {
			return err
		}
		if !s.nodes.Push(n.ID, n) {
			return fmt.Errorf("node %q stands twice or out of order", n.ID)
		}
		return nil
	case kindKey:
		return s.keys.load(b)
	case registry.KindClient, registry.KindAnswer, registry.KindTombstone:
		return s.clients.Load(kind, b)
	}
	return fmt.Errorf("record of unknown kind %d", kind)
}

// tables is the order in which the tables stand in a snapshot.
var tables = [...]byte{kindNode, kindKey, registry.KindClient, registry.KindAnswer, registry.KindTombstone}

type snapshotReader struct {
	r     *bufio.Reader
	sum   *xxhash.Digest
	buf   []byte
	rows  uint64
	table int // that of the last row
	err   error
}

// order checks that a row stands in the table of the last one or in a later one.
func (in *snapshotReader) order(kind byte) {
	at := bytes.IndexByte(tables[in.table:], kind)
	if at < 0 {
		in.fail(fmt.Sprintf("a record of kind %d stands out of order", kind))
		return
	}
	in.table += at
}

func (in *snapshotReader) check(err error) {
	if in.err == nil && err != nil {
		in.err = fmt.Errorf("%w: %w", errSnapshot, err)
	}
}

func (in *snapshotReader) fail(text string) { in.check(errors.New(text)) }

// read returns the next n bytes, valid until the next call.
func (in *snapshotReader) read(n int) []byte {
	if in.err != nil {
		return nil
	}
	if cap(in.buf) < n {
		in.buf = make([]byte, n)
	}
	b := in.buf[:n]
	if _, err := io.ReadFull(in.r, b); err != nil {
		in.check(err)
		return nil
	}
	_, _ = in.sum.Write(b) // a hash never fails
	return b
}

func (in *snapshotReader) record() (kind byte, b []byte) {
	head := in.read(1)
	if in.err != nil {
		return 0, nil
	}
	kind = head[0]
	length := byteReader{in: in}
	n, err := binary.ReadUvarint(&length)
	switch {
	case err != nil:
		in.check(err)
	case n > maxRecord || length.n > 1 && length.last == 0:
		in.fail("the length of a record is too high or not canonical")
	}
	return kind, in.read(int(min(n, maxRecord)))
}

// byteReader reads single bytes through the checksum.
type byteReader struct {
	in   *snapshotReader
	n    int
	last byte
}

// ReadByte implements io.ByteReader.
func (b *byteReader) ReadByte() (byte, error) {
	p := b.in.read(1)
	if b.in.err != nil {
		return 0, b.in.err
	}
	b.last = p[0]
	b.n++
	return b.last, nil
}

// end checks the counts, the digest and the checksum, and that nothing follows.
func (in *snapshotReader) end(b []byte, digest uint64) error {
	r := canon.NewReader(b)
	rows := r.Uint()
	said := r.Fixed(8)
	if r.Done() != nil || rows != in.rows || binary.BigEndian.Uint64(said) != digest {
		in.fail("number of records or digest differ")
	}
	want := in.sum.Sum64()
	if sum := in.read(8); in.err == nil && binary.BigEndian.Uint64(sum) != want {
		in.fail("checksum differs")
	}
	if in.err == nil {
		if _, err := in.r.ReadByte(); err != io.EOF {
			in.fail("bytes after the end")
		}
	}
	return in.err
}
