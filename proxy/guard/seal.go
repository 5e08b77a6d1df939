package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// A Seal says that the ledgers of a driver's volumes lack nobody: whoever had a volume when it
// was put on was written down, and every publish since has gone through this process. It holds
// for one session: this process, and one Caller. Whoever leads in between, guarded or not,
// does so by another connection (proxy.Caller).
//
// It stands in a Lease of the namespace of the records, which is written anew for each use, so
// that what holds is what etcd says: a session that was put on later, or an etcd that was
// restored, ends it. What it permits is said at survey.Seal and fence.Holder.NeverAttached.
//
// It says nothing of what had a volume before, was stripped of all that shows it while nobody
// guarded, and shows it again later on a Node that was there.
type Seal struct {
	surveyor *survey.Surveyor
	leases   coordination.LeaseInterface
	name     string
	// process is an identity that no other process has.
	process string
	life    context.Context
	// OnPutOn, if not nil, is called when it was put on. Set it before the first call.
	OnPutOn func()

	mu      sync.Mutex
	number  int
	session *session // the last one; nil: none yet

	// using holds uses apart: each is a write that rests on the one before.
	using sync.Mutex
}

// SealPrefix begins the name of the Lease; the driver's follows. Its holder is the session that
// put the seal on.
const SealPrefix = "seal-"

const (
	// sealPatience is how long a session's first calls wait for the seal: about half of
	// external-attacher's default --timeout, so that an API server that hangs is still told.
	sealPatience = 7 * time.Second
	// sealAgain is how long after one that failed the seal is tried again, at a call, doubling
	// to sealMost; and after it has ended for what etcd says. A kubelet has written its
	// Node by then (K8s nodeStatusReportFrequency, 5 min).
	sealAgain = 30 * time.Second
	sealMost  = 6 * time.Minute
	// sealTimeout bounds one try. A first one writes a ledger for each volume that is
	// attached anywhere.
	sealTimeout = time.Hour
	// adoptTimeout bounds one of them; a list of the driver's has to end in it.
	adoptTimeout = 3 * time.Minute
	// watchedFor is by when a node that is silent is known to be.
	watchedFor = 30 * time.Second
	// sealPause between two ledgers that are written.
	sealPause = 50 * time.Millisecond
	// sealLeap is how far ahead of what was seen a resourceVersion may be: an etcd that was restored
	// may have been told to count on from far above, for caches to notice it (etcdutl snapshot
	// restore --bump-revision).
	sealLeap = 100_000_000
)

// session is a Caller whose calls this process judges.
type session struct {
	caller *proxy.Caller
	name   string
	ctx    context.Context // it goes on
	cancel context.CancelFunc
	began  time.Time     // of the last try
	opened chan struct{} // closed when its Lease is written, or could not be
	tried  chan struct{} // closed when that has ended
	pause  time.Duration // until the next one
	on     *coordinationv1.Lease
	from   uint64 // the resourceVersion at which it was put on
	found  *survey.Whereabouts
	// given are the UIDs of the PersistentVolumes, and the disks, that this process has
	// published since it began.
	given *survey.Names
	// apart are volumes of which the seal says nothing: many nodes may have them, or could
	// once, or somebody has them who cannot be written down.
	apart map[string]bool
	// doubted are Nodes that came later, and listed the volume though no ledger named them.
	doubted map[place]bool
	// high is the latest resourceVersion that etcd gave to a write of ours.
	high uint64
}

// place is a Node where a volume may be, by their names (Identity.Key).
type place struct{ volume, node string }

// NewSeal makes a Seal that is not put on yet. life ends what it begins.
func NewSeal(life context.Context, surveyor *survey.Surveyor, leases coordination.LeasesGetter, process string) *Seal {
	return &Seal{surveyor: surveyor, leases: leases.Leases(surveyor.Records.Namespace()), name: sealName(surveyor.IDs.Driver), process: process, life: life}
}

// sealName is the name of the Lease.
func sealName(driver string) string {
	name := SealPrefix + driver
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(name))
		name = SealPrefix + hex.EncodeToString(sum[:16])
	}
	return name
}

// ReadSeal is the seal as it stands, for who looks and decides nothing; nil: there is none.
// Whether it still holds is for the process to know that put it on.
func ReadSeal(ctx context.Context, surveyor *survey.Surveyor, leases coordination.LeasesGetter) (survey.Seal, error) {
	lease, err := leases.Leases(surveyor.Records.Namespace()).Get(ctx, sealName(surveyor.IDs.Driver), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && lease.Spec.AcquireTime == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return shownSeal{lease.Spec.AcquireTime.Time}, nil
}

// shownSeal is when a seal was put on.
type shownSeal struct{ at time.Time }

func (s shownSeal) Covers(_ context.Context, _ string, node *corev1.Node) bool {
	return node.CreationTimestamp.Time.Before(s.at)
}

func (shownSeal) Records(context.Context, string, string) (recorded, unsure bool) {
	return true, false // as far as it can be seen
}

func (shownSeal) Doubt(string, string, string) {}

func (shownSeal) MadeSince(context.Context, *corev1.PersistentVolume, bool) bool {
	return false // who looks asks no driver
}

type sessionKey struct{}

// enter is the context of a call, in whose session the seal is put on. The first calls wait
// for that, for sealPatience at most.
func (s *Seal) enter(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	caller := proxy.CallerOf(ctx)
	if caller == nil {
		return context.WithValue(ctx, sessionKey{}, (*session)(nil))
	}
	s.mu.Lock()
	now := s.session
	switch {
	case now == nil || now.caller != caller:
		if now != nil {
			now.cancel()
		}
		s.number++
		now = &session{caller: caller, name: s.process + "/" + strconv.Itoa(s.number), apart: map[string]bool{}, doubted: map[place]bool{}, given: survey.NewNames(), pause: sealAgain}
		now.ctx, now.cancel = context.WithCancel(context.WithValue(s.life, sessionKey{}, (*session)(nil))) // nothing that it judges rests on a seal
		s.session = now
		s.try(now)
	case now.on == nil && closed(now.tried) && time.Since(now.began) >= now.pause:
		now.pause = min(2*now.pause, sealMost)
		s.try(now)
	}
	opened, tried, waits := now.opened, now.tried, now.pause == sealAgain && time.Since(now.began) < sealPatience
	s.mu.Unlock()
	patience := time.NewTimer(sealPatience)
	defer patience.Stop()
	// What another process knows of its own calls is over before ours begin.
	select {
	case <-opened:
	case <-ctx.Done():
	case <-patience.C:
		waits = false // whoever judges says what is wrong
	}
	if waits {
		select {
		case <-tried:
		case <-ctx.Done():
		case <-patience.C:
		}
	}
	return context.WithValue(ctx, sessionKey{}, now)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// try puts the seal on in the background.
func (s *Seal) try(now *session) {
	now.began, now.opened, now.tried = time.Now(), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(now.ctx, sealTimeout)
	go func(tried chan struct{}) {
		defer cancel()
		defer close(tried)
		err := s.putOn(ctx, now)
		if err == nil && s.OnPutOn != nil {
			s.OnPutOn()
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The ledgers could not be sealed; nodes that only wait for a volume may hold it up", "lease", s.name)
		}
	}(now.tried)
}

// putOn writes the seal, which ends every other, then whoever has a volume that no ledger
// names, and then it holds.
func (s *Seal) putOn(ctx context.Context, now *session) error {
	lease, err := s.write(ctx, now)
	close(now.opened)
	if err != nil {
		return err
	}
	found, err := s.surveyor.Whereabouts(throttle.WithTurn(ctx, time.Now().Add(-TurnAhead))) // calls wait for it
	if err != nil {
		return err
	}
	s.setApart(now, found.Many...)
	unsure, err := s.adoptAll(ctx, now, found.Strange)
	if err != nil {
		return err
	}
	s.mu.Lock()
	now.on, now.from, now.found = lease, max(revision(lease.ResourceVersion), found.Newest), found
	now.high = max(now.high, revision(lease.ResourceVersion))
	s.mu.Unlock()
	if len(unsure) > 0 {
		go s.adoptLater(now, unsure)
	}
	return nil
}

// adoptLater writes down, once that is known, who is silent of those that were not watched for
// long enough.
func (s *Seal) adoptLater(now *session, unsure map[string][]string) {
	select {
	case <-now.ctx.Done():
	case <-time.After(watchedFor):
		_, _ = s.adoptAll(now.ctx, now, unsure) // else the seal says nothing of them, as before
	}
}

// adoptAll adopts in the volumes that are strange; unsure are those with nodes that were not
// watched for long enough.
func (s *Seal) adoptAll(ctx context.Context, now *session, strange map[string][]string) (unsure map[string][]string, err error) {
	ctx = throttle.WithTurn(ctx, time.Now().Add(TurnAhead))
	driver := s.driver(ctx)
	unsure = map[string][]string{}
	for _, volume := range slices.Sorted(maps.Keys(strange)) {
		wrote, again, err := s.adopt(ctx, now, volume, strange[volume], driver)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Who has a volume that no ledger names could not be written down", "volume", volume)
			s.setApart(now, volume)
		}
		if again {
			unsure[volume] = strange[volume]
		}
		if !wrote {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(sealPause):
		}
	}
	return unsure, nil
}

func (s *Seal) write(ctx context.Context, now *session) (*coordinationv1.Lease, error) {
	lease, err := s.leases.Get(ctx, s.name, metav1.GetOptions{})
	began, renewed := metav1.NewMicroTime(now.began), metav1.NowMicro()
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = &now.name, &began, &renewed
		return s.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = &now.name, &began, &renewed
	return s.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// driver answers where volumes are for all that are written down.
func (s *Seal) driver(ctx context.Context) survey.Published {
	if d, ok := s.surveyor.Driver.(*csi.Driver); ok {
		return d.List(ctx)
	}
	return s.surveyor.Driver
}

// adopt writes down whoever stands in the way of a publish of the volume, or would if what is
// said of him now were withdrawn, and is in no ledger. places are the nodes that were seen to
// have it. Of what cannot be written down, or may be no holder, the seal says nothing: a
// living node that only lists it in use may be one that waits, and shows itself as long as it
// lives.
func (s *Seal) adopt(ctx context.Context, now *session, volume string, places []string, driver survey.Published) (wrote, unsure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	look := func() (*survey.Survey, error) { return s.surveyor.VolumeBy(ctx, volume, nil) }
	asked := false
	for range rounds {
		sv, err := look()
		if err != nil || len(sv.Book.PVs) == 0 {
			return false, false, err
		}
		if !sv.Writers.Guarded() || sv.PodsUnread || !shows(sv, places) {
			s.setApart(now, volume)
			return false, false, nil
		}
		l, changed, skipped := sv.Book.Ledger.Clone(), false, false
		if sv.Book.Unasked() {
			l = sv.Ledger() // the first write of a ledger names all
		}
		for i := range sv.Holders {
			h := &sv.Holders[i]
			if !unwritten(sv, h) {
				continue
			}
			if cannot := h.NodeID == "" || h.NodeUID == "" && h.Node != nil || h != sv.Holder(h.NodeID) || sv.OneOfMany(h); cannot || mayWait(h) || passes(h) {
				skipped, unsure = true, unsure || h.Liveness == fence.Unwatched
				s.setApart(now, volume)
				continue
			}
			if h.State == fence.TakenOver && h.Node != nil && !h.OwnNode() {
				h.Take(h.Node.Machine(h.NodeName)) // the one that has it again
			}
			l.Put(survey.EntryOf(h, fence.Held, sv.NewToken()))
			changed = true
		}
		if !changed || skipped && sv.Book.Unasked() {
			return false, unsure, nil // the first write of a ledger is a call's then
		}
		if sv.Book.Unasked() && !asked {
			// The driver is not asked again of a volume that has a ledger.
			look, asked = func() (*survey.Survey, error) { return s.surveyor.VolumeBy(ctx, volume, driver) }, true
			continue
		}
		book, err := s.surveyor.Ledgers.Write(ctx, sv.Book, l)
		if err == nil {
			s.noteVersion(book.Canonical().ResourceVersion)
			return true, unsure, nil
		}
		if !isConflict(err) {
			return false, false, err
		}
	}
	return false, false, pendingError(volume)
}

// unwritten tells whether the holder is in no ledger as one that counts, and is neither a node that
// waits, as its pods show, nor one whose kubelet has let the volume go. What else frees it
// (evidence, a driver that revokes) may be over before it is used.
func unwritten(sv *survey.Survey, h *fence.Holder) bool {
	v := fence.JudgeHolder(sv.Snapshot, h)
	switch h.State {
	case fence.NotInLedger:
	case fence.TakenOver:
		if !h.Observed() {
			return false
		}
	case fence.Released:
		return v.Action == fence.Refuse || v.Reason != fence.HolderReleased
	default:
		return false
	}
	return h.From(fence.FromDriver) || v.Action == fence.Refuse || v.Reason != fence.HolderWaits && v.Reason != fence.HolderReleased
}

// shows tells whether what was seen is among what was surveyed. The index that the survey goes by
// may be behind.
func shows(sv *survey.Survey, places []string) bool {
	for _, node := range places {
		if !slices.ContainsFunc(sv.Holders, func(h fence.Holder) bool { return h.NodeName == node }) {
			return false
		}
	}
	return true
}

// mayWait tells whether a node that lives, or may, lists the volume in use, and that is all that is
// known.
func mayWait(h *fence.Holder) bool {
	return h.State == fence.NotInLedger && (h.Liveness == fence.Alive || h.Liveness == fence.Unwatched) && !h.From(fence.FromDriver) &&
		!h.From(fence.FromVolumesAttached) && (h.Attachment == nil || !h.Attachment.Attached)
}

// passes tells whether all that names the holder is a VolumeAttachment that is being deleted, which
// may be one whose unpublish is over.
func passes(h *fence.Holder) bool {
	return h.State == fence.NotInLedger && h.Detaching() && !h.From(fence.FromDriver) && !h.From(fence.FromVolumesAttached) && !h.From(fence.FromVolumesInUse)
}

func (s *Seal) setApart(now *session, volumes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range volumes {
		now.apart[s.surveyor.IDs.Key(v)] = true
	}
}

// shared takes note of a publish for many nodes, of which no ledger tells.
func (s *Seal) shared(ctx context.Context, volume string) {
	if s == nil {
		return
	}
	if now, _ := ctx.Value(sessionKey{}).(*session); now != nil {
		s.setApart(now, volume)
	}
}

// revision is a resourceVersion as a number, which etcd counts (KEP-5504).
func revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// noteVersion takes note of what etcd counted at when it took a write of ours.
func (s *Seal) noteVersion(resourceVersion string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.session; now != nil {
		now.high = max(now.high, revision(resourceVersion))
	}
}

// of is the session of a call; of what is no call it is the last one, for advice.
func (s *Seal) of(ctx context.Context) (now *session, call bool) {
	if v := ctx.Value(sessionKey{}); v != nil {
		return v.(*session), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session, false
}

// holds tells whether the seal of that session is on, as far as this process knows, and
// says so.
func (s *Seal) holds(now *session, says func(*session) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now != nil && now == s.session && now.on != nil && says(now)
}

// knows tells of a session whether the ledger of that volume would name that Node.
func (s *Seal) knows(volume string, nodeUID types.UID) func(*session) bool {
	return func(now *session) bool {
		return now.found.Nodes.Has(string(nodeUID)) && !now.apart[s.surveyor.IDs.Key(volume)]
	}
}

// Covers implements survey.Seal.
func (s *Seal) Covers(ctx context.Context, volume string, node *corev1.Node) bool {
	return s.use(ctx, s.knows(volume, node.UID))
}

// still tells whether the seal holds and says something of that volume, and whether it knows that
// Node: of one that came later the ledger might lack what its machine had before.
func (s *Seal) still(ctx context.Context, volume string, nodeUID types.UID) (holds, knows bool) {
	holds = s.use(ctx, func(now *session) bool { return !now.apart[s.surveyor.IDs.Key(volume)] })
	now, _ := s.of(ctx)
	return holds, s.holds(now, s.knows(volume, nodeUID))
}

// Records implements survey.Seal. Of the VolumeAttachments that were there when the seal was put on,
// whoever had the volume by one was written down then, unless its kubelet had let it go; or the
// volume is apart.
func (s *Seal) Records(ctx context.Context, volume, node string) (recorded, unsure bool) {
	key := s.surveyor.IDs.Key(volume)
	says := func(now *session) bool { return !now.doubted[place{key, node}] && !now.apart[key] }
	if s.use(ctx, says) {
		return true, false
	}
	now, _ := s.of(ctx)
	return false, s.holds(now, says)
}

// Doubt implements survey.Seal. Of a Node that came later the ledger might lack what its machine
// had before.
func (s *Seal) Doubt(volume, node, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.session; now != nil && now.on != nil && !now.found.Nodes.Has(uid) {
		now.doubted[place{s.surveyor.IDs.Key(volume), node}] = true
	}
}

// MadeSince implements survey.Seal. A provisioner makes a volume for a claim, names the
// PersistentVolume after the claim's UID, and writes into it which version of the claim it had
// read (kubernetes-sigs/sig-storage-lib-external-provisioner controller.go,
// provisionClaimOperation). A PersistentVolume that a person makes for a disk that exists already
// has another name, or names a version of before the seal. If it was there when the seal was put
// on it may have been bound to its claim anew, which writes a version of today.
func (s *Seal) MadeSince(ctx context.Context, pv *corev1.PersistentVolume, sure bool) bool {
	handle, ours := s.surveyor.IDs.PVHandle(pv)
	claim := pv.Spec.ClaimRef
	if !ours || claim == nil || claim.UID == "" || !strings.HasSuffix(pv.Name, string(claim.UID)) || pv.Annotations[provisionedBy] != s.surveyor.IDs.Driver {
		return false
	}
	says := func(now *session) bool {
		return revision(claim.ResourceVersion) > now.from && !now.had(string(pv.UID)) && !now.apart[s.surveyor.IDs.Key(handle)]
	}
	if !sure {
		now, _ := s.of(ctx)
		return s.holds(now, says)
	}
	return s.use(ctx, says)
}

// had tells whether what has that name was there when the seal was put on, or was published since.
func (now *session) had(name string) bool { return now.found.Had.Has(name) || now.given.Has(name) }

// newDisk tells of a session whether nobody knew of the volume's disk when the seal was put on, and
// this process has not published it since. A provisioner that is asked again makes another
// PersistentVolume for the disk that it made, so that a new one of these has no new disk.
func (s *Seal) newDisk(sv *survey.Survey) func(*session) bool {
	return func(now *session) bool {
		pvs := sv.Book.PVs
		return len(pvs) == 1 && !now.had(s.surveyor.IDs.Key(sv.Volume)) && !now.had(pvs[0].Name)
	}
}

// gave takes note that the volume was published: whoever takes its ledger off, or makes another
// PersistentVolume for its disk, does not make it a new one.
func (s *Seal) gave(book *ledger.Book) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.session; now != nil {
		now.given.Add(s.surveyor.IDs.Key(book.Handle))
		for _, pv := range book.PVs {
			now.given.Add(string(pv.UID))
		}
	}
}

// provisionedBy is the annotation that says which provisioner made a PersistentVolume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// use tells what the seal says. For a call it is written anew: it holds if nobody has since it
// was put on, and etcd has gone on from there.
func (s *Seal) use(ctx context.Context, says func(*session) bool) bool {
	now, call := s.of(ctx)
	if !s.holds(now, says) || !call {
		return s.holds(now, says)
	}
	s.using.Lock()
	defer s.using.Unlock()
	if ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	s.mu.Lock()
	on, high := now.on, now.high
	s.mu.Unlock()
	if on == nil {
		return false
	}
	next, renewed := on.DeepCopy(), metav1.NowMicro()
	next.Spec.RenewTime = &renewed
	lease, err := s.leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "The seal of the ledgers cannot be used", "lease", s.name)
		return false
	}
	s.mu.Lock()
	if err == nil {
		v := revision(lease.ResourceVersion)
		now.on, now.high = lease, max(now.high, v)
		if v <= high || v > high+sealLeap {
			err = fmt.Errorf("etcd counts at %d, and was at %d", v, high) // it was restored
		}
	}
	if err != nil {
		now.on, now.began, now.pause = nil, time.Now(), sealMost
	}
	s.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The seal of the ledgers has ended", "lease", s.name)
		return false
	}
	return s.holds(now, says)
}

// first tells whether a publish to the node that asks is the first that it ever had of the
// volume (fence.Holder.NeverAttached), if the seal still holds afterwards.
func (s *Seal) first(ctx context.Context, sv *survey.Survey) bool {
	t := sv.Target
	if s == nil || t.Node == nil || t.Node.ListedAttached || t.Attachment == nil || t.Attachment.Attached ||
		!sv.OnlyAttachment(t) || sv.Book.Repaired || len(sv.Book.Before) > 0 {
		return false // of a ledger that is set aside: one that names it may have been there
	}
	for i := range sv.Holders {
		h := &sv.Holders[i]
		own := h.NodeID == t.NodeID && h.NodeName == t.NodeName && h.State == fence.NotInLedger
		if own && h.From(fence.FromDriver) || !own && (h.NodeName == t.NodeName || h.Machine().Compare(t.Machine()) != fence.Other) {
			return false
		}
	}
	now, call := s.of(ctx)
	knows := s.knows(sv.Volume, types.UID(t.Node.UID))
	switch {
	case !call:
		return false
	case !sv.Book.Missing:
		return s.holds(now, knows)
	case !t.Node.InUse && s.holds(now, knows):
		given := func(now *session) bool { return now.given.Has(s.surveyor.IDs.Key(sv.Volume)) }
		return !s.holds(now, given) // else its ledger was taken off
	}
	// A new disk nobody had: not a Node that came later, nor one that lists it, for pods that wait.
	return s.holds(now, s.newDisk(sv)) && survey.IsNew(ctx, s, sv.Book, true)
}
