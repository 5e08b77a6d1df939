package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWhatIsWrongIsNamedInTheWordsOfTheFlags(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"no address":         {"", "--csi-address is missing"},
		"one node":           {"--csi-address=/a --node-ids=n1", `--node-ids names one node, "n1"`},
		"an empty node":      {"--csi-address=/a --node-ids=n1,,n2", "takes for all nodes"},
		"a node twice":       {"--csi-address=/a --node-ids=n1,n2,n1", "names a node twice"},
		"unknown but known":  {"--csi-address=/a --node-ids=n1,n2 --unknown-node-id=n2", "never existed"},
		"gone but there":     {"--csi-address=/a --node-ids=n1,n2 --gone-node-id=n2", "have to exist"},
		"gone twice":         {"--csi-address=/a --node-ids=n1,n2 --gone-node-id=n3 --remove-node-exec=x", "take one of them off"},
		"removing nobody":    {"--csi-address=/a --remove-node-exec=x", "--node-ids, which are missing"},
		"size":               {"--csi-address=/a --volume-size=lots", "--volume-size"},
		"no size":            {"--csi-address=/a --volume-size=0", "more than 0"},
		"access type":        {"--csi-address=/a --access-type=nfs", `--access-type is "nfs"`},
		"block with fs":      {"--csi-address=/a --access-type=block --fs-type=ext4", "--fs-type is for"},
		"timeout":            {"--csi-address=/a --timeout=0s", "--timeout is 0s"},
		"watch":              {"--csi-address=/a --watch=-1s", "--watch is -1s"},
		"rounds":             {"--csi-address=/a --rounds=0", "--rounds is 0"},
		"two writers":        {"--csi-address=/a --writer-exec=x --writer-address=y", "two writers"},
		"output":             {"--csi-address=/a -o xml", `-o is "xml"`},
		"an argument":        {"--csi-address=/a n1", `"n1" is no flag`},
		"an unknown flag":    {"--csi-adress=/a", "csi-adress"},
		"no such file":       {"--csi-address=/a --secrets-file=/nonexistent", "--secrets-file: open /nonexistent"},
		"attributes alone":   {"--csi-address=/a --volume-attributes-file=" + write(t, "a: b"), "belongs to --volume-handle"},
		"parameters of none": {"--csi-address=/a --volume-handle=v --volume-parameters-file=" + write(t, "a: b"), "take one of them off"},
		"parameters as list": {"--csi-address=/a --volume-parameters-file=" + write(t, "- a"), "keys with texts in quotes"},
	} {
		if _, err := Parse(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestTheFilesAreRead(t *testing.T) {
	secrets := write(t, "CreateVolumeSecret:\n  a: one\nControllerPublishVolumeSecret:\n  b: two\nNodeStageVolumeSecret:\n  c: three\n")
	o, err := Parse([]string{"--csi-address=/a", "--node-ids=n1,n2", "--secrets-file=" + secrets, "--volume-parameters-file=" + write(t, "type: fast\n"),
		"--topology=zone=a,rack=b", "--volume-size=3Gi"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Secrets.CreateVolume["a"] != "one" || o.Secrets.Publish["b"] != "two" || o.Secrets.Unpublish != nil {
		t.Error("the secrets are not those of the file")
	}
	if o.VolumeParameters["type"] != "fast" || o.Topology["zone"] != "a" || o.Topology["rack"] != "b" || o.VolumeSize != 3<<30 {
		t.Errorf("%+v", o.Config)
	}
}

func TestNoSecretIsInAnError(t *testing.T) {
	for _, text := range []string{"ControllerPublishVolumeSecret: hunter2", "hunter2", "Password:\n  a: hunter2", "ControllerPublishVolumeSecret:\n  a: [hunter2]", "a: b: hunter2"} {
		_, err := ReadSecrets(write(t, text))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTheHelpNamesEveryFlagAndEveryExitCode(t *testing.T) {
	var text strings.Builder
	PrintHelp(&text)
	for _, want := range []string{"--csi-address", "--node-ids", "--writer-exec", "Exit codes: 0, fit", "1, not fit", "2, asked wrongly", "csi-fencepost-sanity"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the help", want)
		}
	}
	if _, err := Parse([]string{"--help"}); !IsHelp(err) {
		t.Errorf("%v", err)
	}
}
