package fitness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// The time between two looks at what has to happen begins with pollFirst and
// doubles up to pollLast: the driver's cloud counts its calls.
const (
	pollFirst = 20 * time.Millisecond
	pollLast  = time.Second
)

// A pace is one such wait after the other. The zero one begins.
type pace time.Duration

func (p *pace) wait(ctx context.Context) error {
	*p = min(max(2*(*p), pace(pollFirst)), pace(pollLast))
	return pause(ctx, time.Duration(*p))
}

// cleanLimit bounds all of the cleaning.
const cleanLimit = 5 * time.Minute

// elsewhere is what the driver does when a volume is published to a second node.
type elsewhere int

const (
	notAsked   elsewhere = iota
	refuses              // with any error, and it stays where it is
	moves                // away from the first node
	attaches             // to both
	doesNotSay           // it answers OK, and does not list where the volume is
)

// rig is the driver, the nodes and the volume that the questions are about.
type rig struct {
	config     *Config
	calls      *calls
	log        io.Writer // of programs that are run
	conn       *grpc.ClientConn
	controller spec.ControllerClient
	driver     *csi.Driver
	version    string
	publishes  bool
	declares   bool // the capability to list published nodes
	lists      bool // published nodes, as far as is known: truthfully
	topology   map[string]string
	nodes      []string
	volume     *volume
	end        context.CancelFunc // what the driver's reader does in the background

	// What one question has learned for the next.
	elsewhere elsewhere
	// stuck is why the volume cannot be taken from a node.
	stuck error
}

// connect dials the driver and asks who it is. With an error, a rig has what was
// found out before it, and is closed.
func connect(ctx context.Context, config *Config, c *calls, log io.Writer) (*rig, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	options := config.DialOptions
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn, err := grpc.NewClient(target(config.Address), append(slices.Clone(options), grpc.WithUnaryInterceptor(c.intercept))...)
	if err != nil {
		return nil, fmt.Errorf("--csi-address %s: %w", config.Address, err)
	}
	c.timeout = config.Timeout
	// What the driver's reader does goes on after ctx, but not past an interrupt
	// that comes now.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	defer stop()
	r := &rig{config: config, calls: c, log: log, conn: conn, controller: spec.NewControllerClient(conn), end: end}
	if err := r.ask(ctx, life); err != nil {
		r.close()
		return r, err
	}
	return r, nil
}

// target is an address as gRPC takes it.
func target(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix://" + address
	}
	return address
}

func (r *rig) close() {
	r.end()
	r.conn.Close()
}

// ask asks the driver for its name, what it can do, and its nodes.
func (r *rig) ask(ctx, life context.Context) error {
	err := r.call(ctx, func(ctx context.Context) error {
		info, err := spec.NewIdentityClient(r.conn).GetPluginInfo(ctx, &spec.GetPluginInfoRequest{})
		r.version = info.GetVendorVersion()
		return err
	})
	if err != nil {
		return fmt.Errorf("no CSI driver answers at --csi-address %s (GetPluginInfo): %w", r.config.Address, err)
	}
	if r.driver, err = csi.NewDriver(life, r.conn); err != nil {
		return err
	}
	has := func(c spec.ControllerServiceCapability_RPC_Type) bool {
		has, _ := r.driver.Has(ctx, c) // just read
		return has
	}
	r.publishes = has(spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	gets := has(spec.ControllerServiceCapability_RPC_GET_VOLUME)
	r.declares = has(spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES) && (gets || has(spec.ControllerServiceCapability_RPC_LIST_VOLUMES))
	r.lists = r.declares || gets
	creates := has(spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
	if r.publishes && !creates && r.config.VolumeHandle == "" {
		return fmt.Errorf("driver %s creates no volumes (it lacks the capability CREATE_DELETE_VOLUME): make one, and name it with --volume-handle", r.driver.Name())
	}
	return r.findNodes(ctx)
}

// findNodes takes the nodes of the configuration, or the one that NodeGetInfo
// tells of.
func (r *rig) findNodes(ctx context.Context) error {
	var info *spec.NodeGetInfoResponse
	err := r.call(ctx, func(ctx context.Context) (err error) {
		info, err = spec.NewNodeClient(r.conn).NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
		return err
	})
	if r.topology = r.config.Topology; len(r.topology) == 0 {
		r.topology = info.GetAccessibleTopology().GetSegments()
	}
	r.nodes = r.config.NodeIDs
	if len(r.nodes) >= 2 || !r.publishes {
		return nil
	}
	told := "the driver tells of one, " + info.GetNodeId()
	if err != nil {
		told = fmt.Sprintf("the driver tells of none (NodeGetInfo: %s)", brief(err))
	}
	return fmt.Errorf("--node-ids is missing: a takeover needs the IDs of two nodes that exist, and %s", told)
}

// call runs one call with the deadline of a call.
func (r *rig) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	return do(ctx)
}

// retry repeats a call, as external-attacher would, while its error may pass.
func (r *rig) retry(ctx context.Context, do func(context.Context) error) error {
	return r.retryWhile(ctx, transient, do)
}

func (r *rig) retryWhile(ctx context.Context, again func(error) bool, do func(context.Context) error) error {
	end := time.Now().Add(r.config.Timeout)
	for p := pace(0); ; {
		err := do(ctx)
		if err == nil || !again(err) || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		if p.wait(ctx) != nil {
			return err
		}
	}
}

// nodesOf is where the driver says that the volume is published; known is false
// where it does not say.
func (r *rig) nodesOf(ctx context.Context) (nodes []string, known bool, err error) {
	if !r.lists {
		return nil, false, nil
	}
	err = r.call(ctx, func(ctx context.Context) (err error) {
		nodes, known, err = r.driver.PublishedNodes(ctx, r.volume.id)
		return err
	})
	return nodes, known, err
}

// listed waits until the driver names exactly these nodes, and says how long that
// took. It is false where the driver never does, or does not tell; then nodes are
// what it named last.
func (r *rig) listed(ctx context.Context, limit time.Duration, want ...string) (took time.Duration, nodes []string, is bool, err error) {
	began := time.Now()
	for p := pace(0); ; {
		nodes, _, err = r.nodesOf(ctx)
		took = time.Since(began)
		switch {
		case err != nil && !transient(err) || ctx.Err() != nil:
			return took, nodes, false, errors.Join(err, ctx.Err())
		case !r.lists && len(want) > 0:
			return took, nil, false, nil
		case err == nil && slices.Equal(nodes, slices.Sorted(slices.Values(want))):
			return took, nodes, true, nil
		case took >= limit:
			return took, nodes, false, err
		}
		if err := p.wait(ctx); err != nil {
			return took, nodes, false, err
		}
	}
}

// stays looks for a while whether the driver names another set of nodes than
// these; other is the first that it did.
func (r *rig) stays(ctx context.Context, want ...string) (other []string, stays bool, err error) {
	want = slices.Sorted(slices.Values(want))
	p := pace(0)
	for end := time.Now().Add(r.config.Watch); ; {
		nodes, _, err := r.nodesOf(ctx)
		switch {
		case err != nil && !transient(err) || ctx.Err() != nil:
			return nil, false, errors.Join(err, ctx.Err())
		case err == nil && r.lists && !slices.Equal(nodes, want):
			return nodes, false, nil
		case time.Now().After(end):
			return nil, true, nil
		}
		if err := p.wait(ctx); err != nil {
			return nil, false, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxMessage bounds what is shown of a driver's own words.
const maxMessage = 160

// brief is an answer as a person reads it: the code, and the beginning of the
// message.
func brief(err error) string {
	if err == nil {
		return "OK"
	}
	text := strings.Join(strings.Fields(status.Convert(err).Message()), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return fmt.Sprintf("%s (%s)", codeName(status.Code(err)), text)
}

// shown is a driver's error in brief; its code can still be asked for.
type shown struct{ error }

func (s shown) Error() string { return brief(s.error) }
func (s shown) Unwrap() error { return s.error }

// codeName is a code as the CSI specification writes it.
func codeName(c codes.Code) string {
	if c == codes.OK {
		return "OK"
	}
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

func names(nodes []string) string {
	if len(nodes) == 0 {
		return "no node"
	}
	return strings.Join(nodes, " and ")
}
