// Package client is the Go client of kvonce: every retry is safe.
//
// A Client is registered with the cluster and numbers its requests. The cluster keeps the answer to each until the
// client says that it has it, so that the library can send a request again, to the same node or another, as often as it
// takes: it takes effect at most once, and the answer is the same each time. A call is retried until its context ends;
// nothing else limits its time.
//
// # Outcomes
//
// A nil error means that the command took effect, once. Of an error, OutcomeOf tells what is known of the request as a
// whole, however many copies of it were sent:
//
//   - NotApplied is final. Nothing happened, and nothing will.
//   - Applied means that it took effect and that only the answer is missing.
//   - Unknown means that the context ended while a copy may have been on its way. The error is an *UnknownError then:
//     the library goes on asking for the outcome under the same sequence, Wait returns it, and Cancel makes it final.
//
// A call that waits for a connection, for the registration or for room in the window has sent nothing: when its context
// ends, its outcome is NotApplied.
//
// # Registration and expiry
//
// The first write registers the client. From then on the library keeps it alive, and only the cluster can end it: when
// it hasn't heard of the client for the client's time to live. Then each request on its way gets its verdict. Those that
// never ran are sent under a new registration while their callers wait, which is safe; those that did fail with outcome
// Applied. A request whose outcome isn't known is never sent under another registration.
//
// # Reads
//
// Reads are linearizable unless they ask for less, take no sequence, and are retried until their context ends. An
// iteration over many keys is read in pages, each as of one revision.
package client
