package node

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/registry"
	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// errTooOld means that a serializable read can't be as young as was asked.
var errTooOld = errors.New("the state of this node is older than asked for, or its age is unknown")

// requests answers what clients ask, once raft runs.
type requests struct {
	machine *machine
	propose *proposer
	reads   *reader
	leader  func() *kvoncev1.Leader
	// replayed counts the answers that were stored by an earlier copy.
	replayed atomic.Uint64
}

// Do starts one request; reply is called exactly once.
func (q *requests) Do(c transport.Caller, r *kvoncev1.Request, reply func(*kvoncev1.Response)) {
	var err error
	switch k := r.GetKind().(type) {
	case *kvoncev1.Request_Write:
		err = q.write(c, k.Write, reply)
	case *kvoncev1.Request_Cancel:
		err = q.cancel(c, k.Cancel, reply)
	case *kvoncev1.Request_Touch:
		err = q.touch(c, k.Touch.GetProgress(), reply)
	case *kvoncev1.Request_Register:
		err = q.register(k.Register, reply)
	case *kvoncev1.Request_Close:
		q.closeClient(c, k.Close, reply)
	case *kvoncev1.Request_Unregistered:
		err = q.unregistered(k.Unregistered, reply)
	case *kvoncev1.Request_Read:
		err = q.read(k.Read, reply)
	default:
		err = invalid("request", "is missing or of an unknown kind")
	}
	if err != nil {
		reply(q.refusal(err))
	}
}

// refusal is the response to a request that the log didn't decide, with a hint at the leader.
func (q *requests) refusal(err error) *kvoncev1.Response {
	out := responseToError(err)
	if out.Outcome == kvoncev1.Outcome_REFUSED {
		out.Leader = q.leader()
	}
	if v := q.machine.View(); v.Born() {
		out.ClusterTimeMs = v.Time()
	}
	return out
}

// decided turns a reply with a response into one for the proposer.
func (q *requests) decided(reply func(*kvoncev1.Response)) func(fsm.Result, error) {
	return func(r fsm.Result, err error) {
		if err != nil {
			reply(q.refusal(err))
			return
		}
		if r.Replayed {
			q.replayed.Add(1)
		}
		reply(responseTo(&r))
	}
}

func (q *requests) write(c transport.Caller, w *kvoncev1.Write, reply func(*kvoncev1.Response)) error {
	salt, err := saltOf(w.GetSalt())
	if err != nil {
		return err
	}
	progress, err := progressOf(w.GetProgress())
	if err != nil {
		return err
	}
	command, err := encodeCommand(w.GetCommand())
	if err != nil {
		return err
	}
	if q.repeat(c, w.GetSequence(), salt, command, progress, reply) {
		return nil
	}
	q.propose.Propose(proposal{
		client: c.ClientID, secret: c.Verifier, size: len(command) + 64,
		request: &fsm.Request{Seq: w.GetSequence(), Progress: progress, Salt: salt, Command: command},
		reply:   q.decided(reply),
	})
	return nil
}

// repeat answers from applied state when the answer is stored, on any node and without the log: an applied answer
// never changes. The client is alive, so a touch follows where this node can propose one.
func (q *requests) repeat(c transport.Caller, seq uint64, salt, command []byte, p registry.Progress, reply func(*kvoncev1.Response)) bool {
	view := q.machine.View()
	d, ok := view.Registry().Stored(c.ClientID, c.Verifier, seq, func() registry.Fingerprint {
		return fsm.FingerprintOf(salt, command)
	})
	if !ok {
		return false
	}
	q.decided(reply)(fsm.Result{Decision: d, Time: view.Time()}, nil)
	if q.propose.gate.check() == nil {
		q.propose.Propose(proposal{
			touch: &fsm.Touch{Client: c.ClientID, Verifier: c.Verifier, Progress: p}, size: 64,
			reply: func(fsm.Result, error) {},
		})
	}
	return true
}

func (q *requests) cancel(c transport.Caller, m *kvoncev1.Cancel, reply func(*kvoncev1.Response)) error {
	salt, err := saltOf(m.GetSalt())
	if err != nil {
		return err
	}
	progress, err := progressOf(m.GetProgress())
	if err != nil {
		return err
	}
	command, err := encodeCommand(m.GetCommand())
	if err != nil {
		return err
	}
	q.propose.Propose(proposal{
		client: c.ClientID, secret: c.Verifier, size: 128,
		request: &fsm.Request{Seq: m.GetSequence(), Progress: progress, Cancel: true, Fingerprint: fsm.FingerprintOf(salt, command)},
		reply:   q.decided(reply),
	})
	return nil
}

func (q *requests) touch(c transport.Caller, m *kvoncev1.Progress, reply func(*kvoncev1.Response)) error {
	progress, err := progressOf(m)
	if err != nil {
		return err
	}
	q.propose.Propose(proposal{
		touch: &fsm.Touch{Client: c.ClientID, Verifier: c.Verifier, Progress: progress}, size: 64,
		reply: q.decided(reply),
	})
	return nil
}

func (q *requests) register(m *kvoncev1.Register, reply func(*kvoncev1.Response)) error {
	reg, err := registrationOf(m)
	if err != nil {
		return err
	}
	q.propose.Propose(proposal{
		item: &fsm.Item{Kind: fsm.ItemRegister, Register: reg}, size: 128,
		reply: func(r fsm.Result, err error) { reply(q.registered(r, err)) },
	})
	return nil
}

func (q *requests) registered(r fsm.Result, err error) *kvoncev1.Response {
	if err != nil {
		return q.refusal(err)
	}
	out := responseTo(&r)
	if c := r.Client; c != nil {
		incarnation := q.machine.View().Incarnation()
		out.Result = &kvoncev1.Response_Registered{Registered: &kvoncev1.Registered{
			ClientId: c.ID, TtlMs: c.TTL, Window: c.Window, Ordered: c.Ordered, Incarnation: incarnation[:]}}
	}
	return out
}

func (q *requests) closeClient(c transport.Caller, m *kvoncev1.Close, reply func(*kvoncev1.Response)) {
	q.propose.Propose(proposal{
		item: &fsm.Item{Kind: fsm.ItemClose, Close: fsm.Close{Client: c.ClientID, Verifier: c.Verifier,
			First: m.GetFirstOutstanding(), Unresolved: m.GetUnresolved()}}, size: 64,
		reply: q.decided(reply),
	})
}

func (q *requests) unregistered(m *kvoncev1.Command, reply func(*kvoncev1.Response)) error {
	command, err := encodeCommand(m)
	if err != nil {
		return err
	}
	q.propose.Propose(proposal{
		item: &fsm.Item{Kind: fsm.ItemUnregistered, Command: command}, size: len(command) + 16,
		reply: q.decided(reply),
	})
	return nil
}

func (q *requests) read(m *kvoncev1.Read, reply func(*kvoncev1.Response)) error {
	if m.GetConsistency() == kvoncev1.Consistency_SERIALIZABLE {
		return q.readLocal(m, reply)
	}
	q.reads.Read(func(view *fsm.State, err error) {
		if err == nil && !view.Born() {
			err = errNotReady
		}
		if err != nil {
			reply(q.refusal(err))
			return
		}
		reply(readResponse(view, m))
	})
	return nil
}

// readLocal answers from the local state at once, with its age. The age is taken before the state, so that the state
// is never older than it says.
func (q *requests) readLocal(m *kvoncev1.Read, reply func(*kvoncev1.Response)) error {
	age, known := q.reads.Age()
	if limit := time.Duration(m.GetMaxAgeMs()) * time.Millisecond; limit > 0 && (!known || age > limit) {
		return errTooOld
	}
	view := q.machine.View()
	if !view.Born() {
		return errNotReady
	}
	out := readResponse(view, m)
	if r := out.GetRead(); r != nil && known {
		ms := uint64(age.Milliseconds())
		r.AgeMs = &ms
	}
	reply(out)
	return nil
}

func readResponse(view *fsm.State, m *kvoncev1.Read) *kvoncev1.Response {
	result := &kvoncev1.ReadResult{Revision: view.Revision()}
	switch k := m.GetKind().(type) {
	case *kvoncev1.Read_Get:
		if kv, ok := view.Read(k.Get.GetKey()); ok {
			result.Kvs = []*kvoncev1.KeyValue{keyValueTo(&kv)}
		}
	case *kvoncev1.Read_Range:
		kvs, more := view.ReadRange(k.Range.GetStart(), k.Range.GetEnd(), k.Range.GetLimit(), k.Range.GetKeysOnly())
		result.Kvs, result.More = keyValuesTo(kvs), more
	default:
		return responseToError(invalid("read", "is missing or of an unknown kind"))
	}
	return &kvoncev1.Response{Code: kvoncev1.Code_OK, Outcome: kvoncev1.Outcome_APPLIED, Index: view.Index(), Term: view.Term(),
		ClusterTimeMs: view.Time(), Result: &kvoncev1.Response_Read{Read: result}}
}
