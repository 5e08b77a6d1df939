package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bench/rack"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

const (
	// stageLabel is what the bed's pods ask of a node.
	stageLabel = "fencepost.test/stage"
	// kubeletQPS and kubeletBurst are a kubelet's limits.
	kubeletQPS, kubeletBurst = 50, 100
	bmcUser, bmcPassword     = "admin", "s3cret-of-the-bmc"
	// stormSettle is how long the volumes are given until they all run.
	stormSettle = 15 * time.Minute
)

// stormSide is one of the two that are compared: a driver, its machines and their
// volumes, on a control plane of its own.
type stormSide struct {
	*plane
	kind    *stormKind
	alone   bool // Kubernetes
	volumes int
	stage   *bed.Stage
	sight   *stormSight
	// dying lose their power, takers are left.
	dying, takers []*rack.Machine
	metrics       string // of external-attacher, a URL

	bmcs []*bmc.BMC // of the dying, then of the takers

	offAt  time.Time
	cores  []coreLook        // each second since
	nodeOf map[string]string // the node of each pod at that moment
	stuck  *array.Injection

	mu       sync.Mutex
	operated error // what went wrong for the operator
}

// newStormSide sets a side up until all of its volumes are in use.
func (b *bench) newStormSide(p *plane, k *stormKind, alone bool) (*stormSide, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	name := map[bool]string{false: "guarded", true: "alone"}[alone]
	s := &stormSide{plane: p, kind: k, alone: alone, volumes: b.volumesOf(k), metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", port)}
	s.stage = p.bed.Stage(p, name, bed.StageOptions{Alone: alone, Nodes: -1, Failover: true, Config: k.config(), FencepostArgs: b.stormLimits,
		AttacherArgs: append([]string{fmt.Sprintf("--http-endpoint=127.0.0.1:%d", port)}, advised...)})
	s.stage.Array.Set(func(sw *array.Switches) { sw.PublishTakes, sw.UnpublishTakes = k.takes, k.takes })
	if s.dying, err = s.boot("m", b.stormNodes); err != nil {
		return nil, err
	}
	if s.takers, err = s.boot("t", b.stormTaker); err != nil {
		return nil, err
	}
	levels, err := s.levels()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range s.dying {
		names = append(names, m.Name)
	}
	if s.sight, err = newStormSight(p, s.stage, names); err != nil {
		return nil, err
	}
	s.stage.StartFailover(levels, "maxUnhealthy: "+stormShare)
	return s, s.fill(b)
}

// fill makes the volumes and the pods that use them, all on the dying machines,
// and opens the others to them then.
func (s *stormSide) fill(b *bench) error {
	if err := s.cordon(true); err != nil {
		return err
	}
	if err := s.makeVolumes(); err != nil {
		return err
	}
	b.progress("    %s: %d machines and %d volumes are made", s.stage.Name, len(s.dying)+len(s.takers), s.volumes)
	for began := time.Now(); s.sight.count(true) < s.volumes; {
		if time.Since(began) > stormSettle {
			return fmt.Errorf("only %d of %d pods run after %s", s.sight.count(true), s.volumes, stormSettle)
		}
		if err := sleep(s.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	b.progress("    %s: all run", s.stage.Name)
	return s.cordon(false)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// boot starts n machines.
func (s *stormSide) boot(prefix string, n int) ([]*rack.Machine, error) {
	machines := make([]*rack.Machine, n)
	err := parallel(n, 8, func(i int) error {
		name := fmt.Sprintf("%s-%s%02d", s.stage.Name, prefix, i+1)
		client, err := s.kubeletClient(name)
		if err != nil {
			return err
		}
		machines[i], err = rack.Boot(s.ctx, rack.Options{Name: name, ID: "id-" + name, Client: client, Array: s.stage.Array,
			Folder: filepath.Join(s.bed.Cluster.Folder(), "rack", name), Labels: map[string]string{stageLabel: s.stage.Name}})
		return err
	})
	for _, m := range machines {
		if m != nil {
			s.Cleanup(m.Stop)
		}
	}
	return machines, err
}

// kubeletClient has the rights and the limits of a node's kubelet.
func (s *stormSide) kubeletClient(node string) (kubernetes.Interface, error) {
	path, err := s.bed.Cluster.Kubeconfig("system:node:"+node, "system:nodes")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.ContentType, config.UserAgent = kubeletQPS, kubeletBurst, runtime.ContentTypeProtobuf, "simulated-kubelet"
	return kubernetes.NewForConfig(config)
}

// levels are csi-fencepost's fence agents: one level, a BMC for each machine.
func (s *stormSide) levels() (string, error) {
	if s.alone {
		return "", nil
	}
	user, password := s.stage.Write("bmc-user", bmcUser+"\n", 0o600), s.stage.Write("bmc-password", bmcPassword+"\n", 0o600)
	machines := append(append([]*rack.Machine(nil), s.dying...), s.takers...)
	addresses := make([]string, len(machines))
	s.bmcs = make([]*bmc.BMC, len(machines))
	err := parallel(len(machines), 4, func(i int) error {
		m := machines[i]
		b, err := bmc.Start(s.ctx, s.bed.Cluster.Folder(), bmc.Options{GUID: m.SystemUUID, User: bmcUser, Password: bmcPassword, Power: m})
		if err != nil {
			return err
		}
		s.bmcs[i] = b
		addresses[i] = fmt.Sprintf("%s: %q", m.Name, b.Addr)
		return nil
	})
	for _, b := range s.bmcs {
		if b != nil {
			s.Cleanup(b.Stop)
		}
	}
	return fmt.Sprintf("[{agents: [{name: bmc, timeout: 10s, attempts: 2, ipmi: {usernameFile: %s, passwordFile: %s, nodes: {%s}}}]}]",
		user, password, strings.Join(addresses, ", ")), err
}

// cordon keeps pods away from the takers, or lets them go there.
func (s *stormSide) cordon(on bool) error {
	return parallel(len(s.takers), 8, func(i int) error {
		return s.changeNode(s.takers[i].Name, func(n *corev1.Node) { n.Spec.Unschedulable = on })
	})
}

func (s *stormSide) changeNode(name string, change func(*corev1.Node)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := s.client.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = s.client.CoreV1().Nodes().Update(s.ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// operator is the person of Kubernetes alone, who never hesitates.
func (s *stormSide) operator(node string) {
	err := s.changeNode(node, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, bed.OutOfServiceTaint) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operated = cmp.Or(s.operated, err)
}

// powerOff takes the power from all dying machines at once.
func (s *stormSide) powerOff() error {
	s.nodeOf = s.sight.powerOff()
	s.offAt = time.Now()
	errs := make([]error, len(s.dying))
	var work sync.WaitGroup
	for i, m := range s.dying {
		work.Go(func() { errs[i] = m.PowerOff() })
	}
	work.Wait()
	return errors.Join(errs...)
}

// stuckPod is the one whose volume's unpublish hangs.
func (s *stormSide) stuckPod() string { return podName(0) }

// hang lets the driver answer no unpublish of one volume.
func (s *stormSide) hang() {
	s.stuck = s.stage.Array.Inject(array.Fault{Method: array.Unpublish, Volume: volumeOf(s.stuckPod()), Do: array.Hang})
}

// hangBMCs lets no BMC of a dying machine answer; resumeBMCs ends that.
func (s *stormSide) hangBMCs() error   { return s.eachBMC((*bmc.BMC).Hang) }
func (s *stormSide) resumeBMCs() error { return s.eachBMC((*bmc.BMC).Resume) }

func (s *stormSide) eachBMC(do func(*bmc.BMC) error) error {
	var errs []error
	for _, b := range s.bmcs[:len(s.dying)] {
		errs = append(errs, do(b))
	}
	return errors.Join(errs...)
}

func (s *stormSide) hanging() int {
	if s.stuck != nil {
		return 1
	}
	return 0
}

// published tells when the driver first said yes for each volume elsewhere, since
// the power's end, by pod.
func (s *stormSide) published() map[string]time.Time {
	dying, at := map[string]bool{}, map[string]time.Time{}
	for _, m := range s.dying {
		dying[m.ID] = true
	}
	for _, c := range s.stage.Array.CallsOf(array.Publish, "") {
		pod := podOf(c.Volume)
		if _, known := at[pod]; !known && !dying[c.Node] && c.End.After(s.offAt) && c.Code == codes.OK {
			at[pod] = c.End
		}
	}
	return at
}
