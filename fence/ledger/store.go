package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// ErrConflict tells that the ledger, or its PersistentVolume, is not what the Book was
// read from any more. Nothing of the attempt counts: read and judge again.
var ErrConflict = errors.New("the volume's ledger has changed since it was read")

const (
	// writeTimeout bounds a Write or Update, which outlives its caller.
	writeTimeout = 15 * time.Second
	// writeAttempts of one Write, while others change the PV but not its
	// ledger: external-attacher does so right before the first publish.
	writeAttempts = 10
)

// Store reads and writes the ledgers of one driver in one cluster. It may be
// used by many at once. It needs the verbs get and patch on
// persistentvolumes; an API error of the server is passed on, wrapped.
type Store struct {
	pvs     corev1client.PersistentVolumeInterface
	cluster string
	ids     *csi.Identity
	// Random is where tokens come from: crypto/rand, but for tests.
	Random io.Reader
}

// New makes a Store. cluster is the UID of the namespace kube-system.
func New(client kubernetes.Interface, cluster string, ids *csi.Identity) *Store {
	return &Store{pvs: client.CoreV1().PersistentVolumes(), cluster: cluster, ids: ids, Random: rand.Reader}
}

// NewToken is a token that no other entry has.
func (s *Store) NewToken() string {
	var token [8]byte
	if _, err := io.ReadFull(s.Random, token[:]); err != nil {
		panic(fmt.Sprintf("no random bytes for a token: %v", err)) // a guessable token could cut another's entry
	}
	return hex.EncodeToString(token[:])
}

// Read gets the named PVs live and opens their ledgers. Names that are gone, or that turn out to be
// of another volume, are passed over. A PV of which the labels alone can have made another handle
// counts where its ledger names holders by this one, or no PV has this one. An annotation that is
// not a ledger is a *GarbledError; an API error is passed on, wrapped.
func (s *Store) Read(ctx context.Context, handle string, pvNames []string) (*Book, error) {
	names := slices.Clone(pvNames)
	slices.Sort(names)
	var pvs, perhaps []*corev1.PersistentVolume
	for _, name := range slices.Compact(names) {
		pv, err := s.get(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		own, _ := s.ids.PVHandle(pv)
		switch {
		case !s.ids.PVMayHave(pv, handle):
		case s.ids.Same(own, handle) || s.holdsBy(pv, handle):
			pvs = append(pvs, pv)
		default:
			perhaps = append(perhaps, pv)
		}
	}
	if len(pvs) == 0 {
		pvs = perhaps
	}
	Sort(pvs)
	return s.open(handle, pvs)
}

// holdsBy tells whether the ledger of that PV counts, and may name holders by that handle.
func (s *Store) holdsBy(pv *corev1.PersistentVolume, handle string) bool {
	l, err := Parse(pv.Annotations[Annotation])
	return err == nil && s.foreign(l, pv) == "" && l.anybody() && s.ids.Same(l.Handle, handle)
}

// Confirm reads once more, and returns ErrConflict if the ledger is not what the
// Book was read from: for an act that writes nothing down.
func (s *Store) Confirm(ctx context.Context, b *Book) error {
	for i, read := range b.PVs {
		now, err := s.get(ctx, read.Name)
		switch {
		case apierrors.IsNotFound(err):
			return ErrConflict
		case err != nil:
			return err
		case now.UID != read.UID || !same(now, b.pages[i]):
			return ErrConflict
		}
	}
	return nil
}

// get reads the PV from etcd: the empty resourceVersion asks for no less.
func (s *Store) get(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv, err := s.pvs.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	return pv, nil
}

// Write puts l in the place of what the Book was read from, and returns the
// Book as it is then. ErrConflict if something of it has changed meanwhile: also
// where l is what was read, as at a retry, since what follows rests on it. It goes
// on when ctx is cancelled. After any other error it is not known whether l was
// written.
func (s *Store) Write(ctx context.Context, b *Book, l *Ledger) (*Book, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return s.write(ctx, b, l)
}

func (s *Store) write(ctx context.Context, b *Book, l *Ledger) (*Book, error) {
	want := s.blank(b.Handle, b.PVs)
	want.keep(l)
	want.Holders = append(want.Holders, l.Clone().Holders...)
	want.trim()
	if b.Moved {
		want.Handle = s.ids.Key(want.Handle) // which says so until it names nobody
	}
	next := &Book{Handle: b.Handle, PVs: slices.Clone(b.PVs), Ledger: want, Missing: len(b.PVs) == 0, Moved: b.Moved}
	if len(b.PVs) == 0 {
		return next, nil
	}
	text := want.String()
	if err := want.validate(); err != nil {
		return nil, fmt.Errorf("refusing to write a ledger that could not be read again, for volume %s: %w", b.Handle, err)
	}
	next.pages = slices.Clone(b.pages)
	if err := s.replace(ctx, next, 0, &text); err != nil {
		return nil, err
	}
	next.pages[0], next.Repaired = page{text: text, there: true, ledger: want}, repaired(next.PVs[0], text)
	// Only now is what the others say written elsewhere.
	for i := 1; i < len(b.pages); i++ {
		if b.pages[i].ledger == nil {
			continue
		}
		if err := s.replace(ctx, next, i, nil); err != nil {
			return nil, err
		}
		next.pages[i] = page{}
	}
	return next, nil
}

// replace sets the annotation of one PV of the Book from what was read to text
// (nil: takes it off), and keeps the PV as it is then.
func (s *Store) replace(ctx context.Context, b *Book, i int, text *string) error {
	read, was := b.PVs[i], b.pages[i]
	from := read
	var err error
	for range writeAttempts {
		var after *corev1.PersistentVolume
		if after, err = s.pvs.Patch(ctx, read.Name, patchType, exchange(from, was, text), metav1.PatchOptions{}); err == nil {
			b.PVs[i] = after
			return nil
		}
		refused := apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
		now, unread := s.get(ctx, read.Name)
		switch {
		case apierrors.IsNotFound(unread):
			return ErrConflict
		case unread != nil:
			return writing(read.Name, err)
		case now.UID != read.UID || holdOn(now) != holdOn(read):
			// Of those with the handle another one may be the canonical one by now.
			return ErrConflict
		case carries(now, text):
			// The answer was lost, and the write was not.
			b.PVs[i] = now
			return nil
		case !refused:
			return writing(read.Name, err)
		case !same(now, was):
			return ErrConflict
		case !apierrors.IsConflict(err) && now.ResourceVersion == from.ResourceVersion:
			// What the patch tested held: it was refused for another reason,
			// such as an admission policy.
			return writing(read.Name, err)
		}
		// Somebody changed the PV and not its ledger, or put it back.
		from = now
	}
	return fmt.Errorf("%w: PersistentVolume %s changes all the time: %w", ErrConflict, read.Name, err)
}

func writing(pv string, err error) error {
	return fmt.Errorf("writing the ledger of PersistentVolume %s: %w", pv, err)
}

func same(pv *corev1.PersistentVolume, was page) bool {
	text, there := pv.Annotations[Annotation]
	return there == was.there && text == was.text
}

func carries(pv *corev1.PersistentVolume, text *string) bool {
	now, there := pv.Annotations[Annotation]
	return there == (text != nil) && (text == nil || now == *text)
}

// updateBackoff between two attempts of an Update; jitter keeps writers apart.
var updateBackoff = wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 12, Cap: 250 * time.Millisecond}

// Update reads the ledger, lets change change it, and writes it, again from the
// start as often as somebody else was faster. change must be the same each time
// it is applied to the same ledger, and returns false if there is nothing to
// write. It goes on when ctx is cancelled. Errors as of Read and Write;
// ErrConflict after writeTimeout.
func (s *Store) Update(ctx context.Context, handle string, pvNames []string, change func(*Ledger) (changed bool)) (*Book, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	backoff := updateBackoff
	for {
		b, err := s.Read(ctx, handle, pvNames)
		if err != nil {
			return nil, err
		}
		l := b.Ledger.Clone()
		if !change(l) {
			return b, nil
		}
		next, err := s.write(ctx, b, l)
		if !errors.Is(err, ErrConflict) {
			return next, err
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s: %w, again and again for %s", handle, ErrConflict, writeTimeout)
		}
	}
}
