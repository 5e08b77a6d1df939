package sidecar

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// What the machines are known by is bound where an agent is told of it, and nowhere else:
// each node would have a record by that. Who answers for others needs the Nodes all the same,
// to remove what was asked of those that are long gone.
func TestIdentitiesAreBoundWhereAnAgentIsToldOfThem(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // with a umask of 002 its group may write to it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fence_test"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		plug string
		mode config.Mode
		want bool
		bind bool
	}{
		{"$(SYSTEM_UUID)", config.Enforce, true, true},
		{"$(NODE)", config.Enforce, true, false},
		{"$(SYSTEM_UUID)", config.Observe, false, true},
	} {
		c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\nmode: " + string(tt.mode) + "\nevidence: {networkFence: false}" +
			"\nfencing: {levels: [{agents: [{name: vm, exec: {agent: fence_test, parameters: {plug: " + tt.plug + "}}}]}]}"))
		if err != nil {
			t.Fatal(err)
		}
		in := Options{Rest: &rest.Config{}, Driver: "disk.example.com", Config: c, AgentDirs: []string{dir}}.withDefaults()
		f, err := newFencing(t.Context(), in, fake.NewClientset(), &record.Store{}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		f.identify(in, nil)
		if got := f.fencer.Machines != nil; got != tt.want {
			t.Errorf("%s in %s: %t, want %t", tt.plug, tt.mode, got, tt.want)
		}
		if f.fencer.Levels.Seek("n1") != tt.bind {
			t.Errorf("%s: a node is bound %t", tt.plug, !tt.bind)
		}
		if f.fencer.CSINodes == nil {
			t.Error("the node IDs are not read live")
		}
	}
}

// It would be asked about another machine than in its turn, or about none.
func TestAnAgentIsPolledOnlyByWhatTheWatchKeepsOfAMachine(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "fence_test"), []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for plug, want := range map[string]string{"$(SYSTEM_UUID)": "finds machines by $(SYSTEM_UUID)", "vm-$(NODE_ID)": "finds machines by $(NODE_ID)", "$(NODE)": "", "$(PROVIDER_ID)": "", "$(INSTANCE_ID)": ""} {
		for _, poll := range []string{"2s", "0s"} {
			c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\nfailover: {enabled: true}" +
				"\nfencing: {pollsPerSecond: 9, levels: [{agents: [{name: vm, poll: " + poll + ", exec: {agent: fence_test, parameters: {plug: " + plug + "}}}]}]}"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewLevels(c, []string{dir}, DriverSide{})
			if refused := err != nil; refused != (want != "" && poll == "2s") || refused && !strings.Contains(err.Error(), "fencing.levels[0].agents[0].poll: agent vm "+want) {
				t.Errorf("%s, poll: %s: %v", plug, poll, err)
			}
		}
	}
}

// In a first start on thousands of nodes those that hold volumes do not wait for the others.
func TestTheMachinesOfNodesThatHoldVolumesComeFirst(t *testing.T) {
	w := newSightedWorld(t, 9)
	apiserver.Put(w.server, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: sightedDriver, NodeName: "n0007", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}})
	w.eventually(t, "the attachment is seen", func() bool { return len(w.sights.index.Holding()) == 1 })
	all := machines(w.sights.index, w.sights.index.NodeID)
	if len(all) != 11 || all[0].NodeName != "n0007" || all[0].BootID != "" {
		t.Errorf("%+v", all)
	}
}
