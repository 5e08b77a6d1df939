package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

const (
	// Annotation holds the record as JSON.
	Annotation = "csi-fencepost.io/record"
	// NodeAnnotation names the node, for the Leases whose name is a hash.
	NodeAnnotation = "csi-fencepost.io/node"

	plainPrefix  = "node-"
	hashedPrefix = "sha256-"
)

// LeaseName is the name of the Lease that keeps the node's record: node-NAME
// where that is a valid name, else a hash of it. No two nodes share one.
func LeaseName(node string) string {
	name := plainPrefix + node
	if node != "" && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return hashedPrefix + hex.EncodeToString(sum[:])
}

// NodeOf tells whose record a Lease keeps; false: it keeps none. It does not
// ask whether the record can be read.
func NodeOf(lease *coordinationv1.Lease) (node string, ok bool) {
	if node, plain := strings.CutPrefix(lease.Name, plainPrefix); plain {
		return node, node != ""
	}
	node = lease.Annotations[NodeAnnotation]
	if node == "" {
		// A copy that kept the record alone.
		var head struct{ Node string }
		if json.Unmarshal([]byte(lease.Annotations[Annotation]), &head) == nil {
			node = head.Node
		}
	}
	return node, node != "" && LeaseName(node) == lease.Name
}

// GarbledError tells that the record of one node cannot be read. That node's claims do
// not count until it is mended; those of other nodes do.
type GarbledError struct {
	Node, Namespace, Lease string
	Err                    error
}

func (e *GarbledError) Error() string {
	if format.IsNewer(e.Err) {
		return fmt.Sprintf("the record of node %s (annotation %s of Lease %s/%s) cannot be read: %v; what it claims does not count until then, and it is whole, so leave it as it is",
			e.Node, Annotation, e.Namespace, e.Lease, e.Err)
	}
	return fmt.Sprintf("the record of node %s (annotation %s of Lease %s/%s) cannot be read: %v; what it claims does not count; "+
		"restore it, or remove it and confirm again: kubectl -n %s annotate lease %s %s- %s- %s-",
		e.Node, Annotation, e.Namespace, e.Lease, e.Err, e.Namespace, e.Lease, Annotation, FencedAnnotation, ClaimedAnnotation)
}

func (e *GarbledError) Unwrap() error { return e.Err }

// FromLease reads the record that the Lease keeps for node, and what is vouched for beside
// it; nil: none. A record that cannot be understood is a *GarbledError.
func FromLease(lease *coordinationv1.Lease, node string) (*Record, error) {
	text, ok := lease.Annotations[Annotation]
	if !ok {
		return nil, nil
	}
	r, err := Parse(text)
	if err == nil && r.Node != node {
		err = fmt.Errorf("it is about node %q", r.Node)
	}
	if err != nil {
		return nil, &GarbledError{Node: node, Namespace: lease.Namespace, Lease: lease.Name, Err: err}
	}
	r.readVouches(lease)
	return r, nil
}

// ToLease puts r, which was read from the Lease, back into its annotations. What is
// vouched for is written where it changed.
func (r *Record) ToLease(lease *coordinationv1.Lease) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[Annotation], lease.Annotations[NodeAnnotation] = text, r.Node
	r.writeVouches(lease)
	return nil
}
