package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

const ledgerHelp = `csi-fencepost ledger export [PV...]  print the ledgers of all volumes, or of these; changes nothing
csi-fencepost ledger repair PV...    rebuild a ledger that cannot be read, or that lacks a holder, from what
                                     VolumeAttachments and Nodes say; shows it first, and writes with --yes

csi-fencepost ledger SUBCOMMAND --help lists the flags.
`

// ledgerCommand is `csi-fencepost ledger`.
func ledgerCommand() cli.Command {
	return cli.Group("ledger", "export and repair the record of who holds a volume", ledgerHelp,
		cli.Command{Name: "export", Run: runLedgerExport},
		cli.Command{Name: "repair", Run: runLedgerRepair})
}

const ledgerExportHelp = `csi-fencepost ledger export [PV...] prints the ledgers of all volumes, or of these PersistentVolumes, for a backup or
for a program. It changes nothing.`

func runLedgerExport(ctx context.Context, args []string, stdout, _ io.Writer) error {
	fs, flags := cli.NewFlags("ledger export", ledgerExportHelp), cluster.Flags{}
	fs.Output("yaml", "json")
	flags.Register(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := flags.Open(fs.Name())
	if err != nil {
		return err
	}
	export, err := exportLedgers(ctx, c, fs.Args())
	if err != nil {
		return err
	}
	return fs.Print(stdout, export, nil)
}

// A ledgerExport is the output of `ledger export`; its JSON is stable as an
// explanation's is.
type ledgerExport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster is the UID of the namespace kube-system.
	Cluster string `json:"cluster"`
	// ExportedAt, RFC 3339 on this machine's clock.
	ExportedAt string           `json:"exportedAt"`
	Items      []exportedLedger `json:"items"`
}

// An exportedLedger is one PersistentVolume that has one.
type exportedLedger struct {
	PV     string `json:"persistentVolume"`
	PVUID  string `json:"persistentVolumeUID"`
	Claim  string `json:"claim,omitempty"` // namespace/name
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// State is present, setAside (it is of another cluster, volume or object) or garbled; Why says
	// why it does not count.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// Ledger as it was read; Text as it stands there, of a garbled one.
	Ledger json.RawMessage `json:"ledger,omitempty"`
	Text   string          `json:"text,omitempty"`
}

// exportLedgers reads the ledgers of the named PersistentVolumes, or of all. A
// volume without a ledger is no item; one that is named and is not there is an
// error.
func exportLedgers(ctx context.Context, c *cluster.Cluster, names []string) (*ledgerExport, error) {
	uid, err := cluster.Identity(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	pvs, err := listPVs(ctx, c, names)
	if err != nil {
		return nil, err
	}
	out := &ledgerExport{APIVersion: config.APIVersion, Kind: "LedgerExport", Cluster: uid, ExportedAt: time.Now().UTC().Format(time.RFC3339), Items: []exportedLedger{}}
	for _, pv := range pvs {
		if _, there := pv.Annotations[ledger.Annotation]; !there {
			continue
		}
		item, err := exportOf(ctx, c, uid, pv)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, *item)
	}
	return out, nil
}

// listPVs are those of these names, or all, by name.
func listPVs(ctx context.Context, c *cluster.Cluster, names []string) ([]*corev1.PersistentVolume, error) {
	var out []*corev1.PersistentVolume
	if len(names) == 0 {
		list, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot list PersistentVolumes: %w", err)
		}
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	}
	for _, name := range names {
		pv, _, err := explain.FindPV(ctx, c, name)
		if err != nil {
			return nil, err
		}
		out = append(out, pv)
	}
	slices.SortFunc(out, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// exportOf is a PersistentVolume with a ledger as it is exported.
func exportOf(ctx context.Context, c *cluster.Cluster, uid string, pv *corev1.PersistentVolume) (*exportedLedger, error) {
	text := pv.Annotations[ledger.Annotation]
	ids := &csi.Identity{Driver: explain.DriverOf(pv)}
	handle, _ := ids.PVHandle(pv)
	item := &exportedLedger{PV: pv.Name, PVUID: string(pv.UID), Claim: cluster.ClaimOf(pv), Driver: ids.Driver, Handle: handle, State: "present"}
	l, err := ledger.Parse(text)
	if err != nil {
		item.State, item.Why, item.Text = "garbled", err.Error(), text
		return item, nil
	}
	item.Ledger = json.RawMessage(l.String())
	if l.Cluster == uid && l.PVUID == string(pv.UID) && l.Driver == ids.Driver && ids.PVMayHave(pv, l.Handle) {
		return item, nil
	}
	// The ledger's own words for why it does not count.
	book, err := ledger.New(c.Client, uid, ids).Read(ctx, handle, []string{pv.Name})
	if err != nil {
		return nil, err
	}
	if len(book.SetAside) > 0 {
		item.State, item.Why = "setAside", strings.Join(book.SetAside, "; ")
	}
	return item, nil
}
