// Package apiserver is a model of the Kubernetes API server at its outermost
// interface, for simulations in which every request and every event of a watch
// is a step that a scheduler decides. Real client-go clients, informers, leader
// elections and event recorders work on it.
//
//	rest.Config.Transport ─▶ Gate.Admit ─▶ the objects ─▶ (Answerer.Answer) ─▶ client
//	                                          │
//	                        informer ◀─ Gate.Deliver ◀─ one change
//
// # Use
//
//	s := apiserver.New(apiserver.Options{})
//	apiserver.Put(s, &corev1.Node{…})                      // what was there before
//	cfg := s.Config("replica-1", gate)                     // or Transport: in a rest.Config of one's own
//	node, ok := apiserver.Find[*corev1.Node](s, "", "n1")  // the models of everybody else
//	apiserver.Change(s, "", "n1", func(n *corev1.Node) { … })
//	…
//	if c := s.Complaints(); len(c) > 0 { t.Fatal(c) }
//
// A [Gate] is called in the goroutine of whoever made the request, or reads the
// watch, and may block: in a testing/synctest bubble, park it on a channel and
// let the scheduler call synctest.Wait, sort what is parked by String() and
// release one. Two requests that are the same to a Gate come from the same client
// at the same time and ask the same; where it matters which of them is served
// first, label their contexts ([WithLabel]: a context.Context's values reach the request
// through all of client-go, and survive context.WithoutCancel).
//
// A request that the client gives up while its gate blocks has no effect, unless
// the Fate is Lose. To crash a client, have its gate return Fail for everything
// and end its context.
//
// # What it guarantees
//
//   - One counter versions all writes; a write that changes nothing has none.
//     PUT, PATCH and DELETE answer 404, 409 and 422 where the real server does:
//     optimistic locks, preconditions, JSON patches whose test fails, immutable
//     fields, finalizers, the two steps of a pod's deletion, status apart from the rest.
//     Package sanity/kubeapi plays the same random operations on it and on a
//     real kube-apiserver and compares answers, objects and watches.
//   - A watch shows every change after its version, in order, or ends, or says that it is
//     too old (an ERROR event with 410, after [Server.Compact]). WatchList
//     (sendInitialEvents), which client-go asks for by default, bookmarks and selectors
//     are served.
//   - A list or get that accepts any version may be answered from an older one
//     (Fate.At), as a watch cache that is behind does.
//   - What is not modelled is answered 501 and complained of, never served as if.
//   - No goroutine, no timer, no socket, no randomness: with the same requests in
//     the same order everything is the same, UIDs too.
//
// # What it does not model
//
//   - Rights: everybody may do everything (a Gate can answer Forbidden).
//   - Admission plugins: no protection finalizers on volumes and claims, no
//     not-ready taint on a new Node, no tolerations and no token in a new Pod. Whoever needs
//     them puts them there.
//   - Controllers: nothing is garbage-collected, no Event expires, no namespace is deleted.
//   - managedFields, but for two entries, which csi-fencepost reads: who wrote the heartbeat
//     of a Node's Ready condition through the subresource status, and when, and who its taints. So an update that
//     changes nothing else writes nothing here: a PUT of another deletion time, say.
//   - Validation, but for what the simulated clients could run into: names, labels,
//     annotations, leases, attachments, drivers, taints, immutable fields.
//   - Server-side apply, dry run, deletecollection, discovery, other kinds than those
//     in kinds.go. Custom resources are absent ([Options]).
//   - The end of a watch by its timeoutSeconds: cut it ([WatchStream.Cut], [Passage]).
//     The retries of net/http itself; client-go's own retries are the real ones.
package apiserver
