package apiserver

import (
	"encoding/base64"
	"fmt"
	"sort"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// readVersion is the version to answer a read from.
func (s *Server) readVersionLocked(c *call, fate Fate) (uint64, error) {
	o := &c.options
	if o.version > s.version {
		return 0, tooLarge(o.version, s.version)
	}
	if fate.At != 0 {
		if !c.Stale || fate.At < c.Floor || fate.At > s.version || fate.At < s.oldest {
			return 0, unmodelledf("an answer from version %d: %s; allowed is what is not before %d, nor before the compaction at %d, nor after %d",
				fate.At, c.Request, c.Floor, s.oldest, s.version)
		}
		return fate.At, nil
	}
	return s.version, nil
}

func tooLarge(asked, now uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func expired(asked, oldest uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", asked, oldest))
}

// getLocked is GET of one object.
func (s *Server) getLocked(c *call, fate Fate) (*stored, error) {
	at, err := s.readVersionLocked(c, fate)
	if err != nil {
		return nil, err
	}
	t := &s.tables[c.kind.id]
	o := t.objects[keyOf(c.Namespace, c.Name)]
	if at != s.version {
		o = t.asOf(at)[keyOf(c.Namespace, c.Name)]
	}
	if o == nil {
		return nil, apierrors.NewNotFound(c.kind.resource(), c.Name)
	}
	return o, nil
}

// listLocked is GET of a collection.
func (s *Server) listLocked(c *call, fate Fate) ([]*stored, metav1.ListMeta, error) {
	o := &c.options
	at, err := s.readVersionLocked(c, fate)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	from := ""
	switch {
	case o.next != nil:
		at, from = o.next.version, o.next.after
	case !c.Stale && !o.newest: // exactly that version
		at = o.version
	}
	if at < s.oldest {
		return nil, metav1.ListMeta{}, expired(at, s.oldest)
	}
	items := s.selectLocked(c, at)
	if from != "" {
		items = items[sort.Search(len(items), func(i int) bool { return items[i].key > from }):]
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}
	// A list that may be stale comes from the watch cache, which knows no pages.
	if left := int64(len(items)) - o.limit; o.limit > 0 && left > 0 && !(c.Stale && o.version == 0) {
		items = items[:o.limit]
		meta.Continue = (&continuation{at, items[len(items)-1].key}).String()
		if o.labels.Empty() && o.fields.Empty() {
			meta.RemainingItemCount = &left
		}
	}
	return items, meta, nil
}

// selectLocked are the objects that the call selects, by key, as of a version.
func (s *Server) selectLocked(c *call, at uint64) []*stored {
	t := &s.tables[c.kind.id]
	all := t.all()
	if at != s.version {
		all = sortedByKey(t.asOf(at))
	}
	if c.Namespace == "" && c.Name == "" && c.options.labels.Empty() && c.options.fields.Empty() {
		return all
	}
	out := make([]*stored, 0, len(all))
	for _, o := range all {
		if c.selects(o) {
			out = append(out, o)
		}
	}
	return out
}

// selects tells whether a list or watch shows that version of an object; nil: no.
func (c *call) selects(o *stored) bool {
	if o == nil || c.Namespace != "" && o.object.GetNamespace() != c.Namespace {
		return false
	}
	if !c.options.labels.Empty() && !c.options.labels.Matches(labels.Set(o.object.GetLabels())) {
		return false
	}
	return c.options.fields.Empty() || c.options.fields.Matches(c.kind.selectable(o.object))
}

// continuation is where the next page of a list begins.
type continuation struct {
	version uint64
	after   string // the last key that was shown
}

func (n *continuation) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(n.version, 10) + " " + n.after))
}

func parseContinuation(text string) (*continuation, error) {
	if text == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("continue key is not valid: %w", err)
	}
	version, after, _ := strings.Cut(string(raw), " ")
	n := &continuation{after: after}
	if n.version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return nil, fmt.Errorf("continue key is not valid: %w", err)
	}
	return n, nil
}
