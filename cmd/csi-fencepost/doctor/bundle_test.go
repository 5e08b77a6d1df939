package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

// unpack are the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = string(text)
	}
}

// Each of these stands in one place of a cluster, and in no bundle.
var placed = []string{
	"env-s3cret-1", "env-plain-2", "arg-s3cret-3", "next-arg-s3cret-4", "shell-s3cret-5", "unknown-flag-6", "url-s3cret-7", "attribute-8", "context-9", "applied-10",
	"inject-annotation-11", "user-annotation-12", "mount-option-13", "probe-14", "header-15", "parameter-16", "node-parameter-17", "config-map-18", "inline-19", "flex-20", "event-env-s3cret-1",
	"ephemeral-21", "template-22", "lifecycle-23", "joined-24", "spaced-25", "short-26", "cGFkZGVkLTI3", "query-28", "beta-mount-29", "status-30", "event-31", "with a blank 32",
	"only-33", "part/34", "\"quoted<35", `\"quoted\u003c35`, "second-file-36", "probe-query-37", "cause-38", "described-39",
}

func TestABundleHasWhatHelpsAndNoSecret(t *testing.T) {
	const agents = `failover: {enabled: true}
fencing: {levels: [{agents: [{name: pdu, exec: {agent: fence_x, parameters: {ip: 10.1.0.2, passwd: parameter-16}, nodeParameters: {port: {n1: "3"}, snmp_priv_passwd: {n1: node-parameter-17}}}}]}]}
`
	w, pod := guarded(t, agents, deploy.Failover)
	guard, driver := &pod.Spec.Containers[2], &pod.Spec.Containers[0]
	guard.Env = []corev1.EnvVar{{Name: "API_TOKEN", Value: "env-s3cret-1"}, {Name: "HARMLESS", Value: "env-plain-2"},
		{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}
	driver.Command = []string{"sh", "-c", "exec driver -p shell-s3cret-5"}
	driver.Args = append(driver.Args, "--password=arg-s3cret-3", "--secret-key", "next-arg-s3cret-4", "--backend=unknown-flag-6", "--endpoint=https://u:url-s3cret-7@array.example.com")
	driver.Args = append(driver.Args, "--config=x -u joined-24", "--password spaced-25 --verbose=1", "-pshort-26", "--secret-key", "cGFkZGVkLTI3==", "--endpoint=https://array.example.com/?sig=query-28")
	driver.Env = []corev1.EnvVar{{Name: "PASSPHRASE", Value: "with a blank 32"}, {Name: "OTHER_PASSWORD", Value: "\"quoted<35"}}
	driver.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health?sig=probe-query-37"}}}
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "cannot log in with password: status-30"}
	driver.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"curl", "-u", "probe-14"}}}}
	driver.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "X", Value: "header-15"}}}}}
	driver.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"lifecycle-23"}}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "x", VolumeAttributes: map[string]string{"a": "inline-19"}}}},
		corev1.Volume{Name: "flex", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "x", Options: map[string]string{"a": "flex-20"}}}})
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "applied-10", "example.com/note": "user-annotation-12", "csi-fencepost.io/maintenance": "kept"}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: []corev1.EnvVar{{Name: "X", Value: "ephemeral-21"}}}}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "block-controller", Namespace: "storage", Annotations: map[string]string{"kubernetes.io/change-cause": "kubectl set env deploy/block-controller X=cause-38",
		"kubernetes.io/description": "log in with password: described-39", "inject.csi-fencepost.io/csi-attacher": `{"args":["--password=inject-annotation-11"]}`}}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "X", Value: "template-22"}}}}
	w.add(deployment)
	for _, o := range w.objects {
		if m, is := o.(*corev1.ConfigMap); is {
			m.Data["other"] = "config-map-18"
		}
	}
	w.node("n1", block)
	pv, _ := w.volume("pv-1", block, "n1", true)
	pv.Spec.CSI.VolumeAttributes = map[string]string{"chap": "attribute-8"}
	pv.Spec.MountOptions = []string{"ro", "password=mount-option-13"}
	pv.Annotations["volume.beta.kubernetes.io/mount-options"] = "password=beta-mount-29"
	w.volume("pv-2", block, "n1", false)
	for _, o := range w.objects {
		if va, is := o.(*storagev1.VolumeAttachment); is {
			va.Status.AttachmentMetadata = map[string]string{"chap": "context-9"}
		}
	}
	w.add(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "storage"}, Message: "the driver said event-env-s3cret-1, or " + url.QueryEscape("env-s3cret-1")})
	w.add(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "f", Namespace: "storage"}, Message: "\x1b[2Jpassword=event-31, https://only-33@array.example.com https://u:part/34@array.example.com"})
	d := w.look("")
	d.add(LookAt, block, strings.Repeat("so it is, ", 7)+"with a blank 32", "")
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	var said strings.Builder
	if err := d.writeBundle(t.Context(), file, io.Discard, &said); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, archive)
	for name, text := range files {
		if strings.Contains(text, "\x1b") {
			t.Errorf("%s commands a terminal", name)
		}
		if joined := strings.Join(strings.Fields(text), " "); strings.Contains(joined, "with a blank 32") {
			t.Errorf("%s has a secret on two lines", name)
		}
		for _, secret := range placed {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(text, form) {
					t.Errorf("%s has %s:\n%s", name, form, text)
				}
			}
		}
	}
	for name, want := range map[string]string{
		"doctor.txt": "IF A NODE DIED NOW", "doctor.yaml": "kind: DoctorReport", "version.txt": ownVersion, "objects/Pod.yaml": "--drivername=block.example.com",
		"objects/Deployment.yaml": "block-controller", "objects/ConfigMap.yaml": "ip: 10.1.0.2", "objects/CSIDriver.yaml": block, "objects/CSINode.yaml": "i-n1", "objects/Node.yaml": "n1",
		"objects/VolumeAttachment.yaml": "csi-pv-2", "objects/PersistentVolume.yaml": "csi-fencepost.io/holders", "objects/Event.yaml": "the driver said", "objects/ClusterRoleBinding.yaml": "csi-fencepost-enforce-" + block,
		"logs/storage/block-controller-0/csi-fencepost.log": "fake logs", "logs/storage/block-controller-0/csi-fencepost-previous.log": "fake logs", "missing.txt": "\n",
		"statusz/storage/block-controller-0/csi-fencepost.json": "block-controller-0:9810/statusz.json",
	} {
		if !strings.Contains(files["csi-fencepost/"+name], want) {
			t.Errorf("%s does not have %q:\n%s", name, want, files["csi-fencepost/"+name])
		}
	}
	if !strings.Contains(files["csi-fencepost/objects/Pod.yaml"], "/health?sig="+stripped) {
		t.Errorf("too much is taken out:\n%s", files["csi-fencepost/objects/Pod.yaml"])
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive is everybody's: %v %v", info, err)
	}
	if !strings.Contains(said.String(), file) {
		t.Errorf("it says %q", said.String())
	}
}

// Log lines that quote what was taken out of an object, or that name a secret, lose it.
func TestFreeTextLosesSecrets(t *testing.T) {
	s := stripper{map[string]string{}}
	s.object(map[string]any{"env": []any{map[string]any{"name": "DB_PASSWORD", "value": "hunter2-long"}, map[string]any{"name": "SHORT_KEY", "value": "on"}, map[string]any{"name": "PASSPHRASE", "value": "with a blank"}, map[string]any{"name": "KEY", "value": "\"quoted<35"}}})
	for text, want := range map[string]string{
		"driver said hunter2-long":                                                  "driver said " + stripped,
		`{"passwd":"abcdef", "node":"n1"}`:                                          `{"passwd":"` + stripped + `", "node":"n1"}`,
		"password: abc123, on":                                                      "password: " + stripped + ", on",
		"GET https://user:pw12@bmc.example.com/x":                                   "GET https://" + stripped + "@bmc.example.com/x",
		"Authorization: Bearer abcdefghijkl":                                        "Authorization: " + stripped,
		"GET /with%20a%20blank":                                                     "GET /" + stripped,
		`"u:p.w@10.0.0.1": must be host:port, r.example.com/x:v1@sha256:ab`:         `"` + stripped + `@10.0.0.1": must be host:port, r.example.com/x:v1@sha256:ab`,
		`{"said":"\"quoted\u003c35"}`:                                               `{"said":"` + stripped + `"}`,
		`password="my pass, phrase", on`:                                            `password="` + stripped + `", on`,
		`body="{\"password\":\"abc\",\"node\":\"n1\"}"`:                             `body="{\"password\":\"` + stripped + `\",\"node\":\"n1\"}"`,
		"Server=a;Password=b,cd;e on":                                               "Server=a;Password=" + stripped + " on",
		`args ["--api-token", "ab cd"] --secret-key efg on`:                         `args ["--api-token", "` + stripped + `"] --secret-key ` + stripped + " on",
		"<password>abcd</password>":                                                 "<password>" + stripped + "</password>",
		"private_key: abc access-key=def":                                           "private_key: " + stripped + " access-key=" + stripped,
		"GET https://tok@h/x, HTTPS://u:p@h:1/w@h/":                                 "GET https://" + stripped + "@h/x, HTTPS://" + stripped + "@h/",
		"GET https://h/x?sig=a%2Bb&limit=5":                                         "GET https://h/x?sig=" + stripped + "&limit=" + stripped,
		"it is eyJhbGciOi.eyJpc3Mi.c2ln_x here":                                     "it is " + stripped + " here",
		"-----BEGIN RSA PRIVATE KEY-----\nMII\nE\n-----END RSA PRIVATE KEY----- on": stripped + " on",
		"the holder is on, and nothing proves that it is off":                       "the holder is on, and nothing proves that it is off",
		"volume pv-1: node n1 holds it [HolderStale]":                               "volume pv-1: node n1 holds it [HolderStale]",
		`I0101 12:00:00.000000 1 run.go:1] "Begins" mode="On"`:                      `I0101 12:00:00.000000 1 run.go:1] "Begins" mode="On"`,
	} {
		if got := s.free(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// What is told on a command line and is no secret stays: it is what somebody who helps reads.
func TestACommandLineKeepsWhatHelps(t *testing.T) {
	s := stripper{map[string]string{}}
	args := []any{"run", "--csi-address=/csi/csi.sock", "--listen", "unix:/f/csi.sock", "--v=2", "--timeout=60s", "--leader-election", "--kube-api-qps=400",
		"--api-token=abc", "--token", "def", "--http-endpoint=:9810", "positional"}
	s.words(args)
	want := []any{"run", "--csi-address=/csi/csi.sock", "--listen", "unix:/f/csi.sock", "--v=2", "--timeout=60s", "--leader-election", "--kube-api-qps=400",
		"--api-token=" + stripped, "--token", stripped, "--http-endpoint=:9810", stripped}
	if !slices.Equal(args, want) {
		t.Errorf("%q\nwant %q", args, want)
	}
}

func TestAConfigurationThatCannotBeReadIsLeftOut(t *testing.T) {
	s := stripper{map[string]string{}}
	if got := s.config("apiVersion: csi-fencepost.io/v1alpha1\npasswd: hunter2"); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// The log of one pod may quote what only an object that is read later shows to be a secret.
func TestWhatIsReadLaterIsTakenOutOfWhatWasReadBefore(t *testing.T) {
	b := newBundle()
	b.files["logs/a.log"] = "driver said second-file-36, password: log-40 \x1b[2J\u202e"
	b.add(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "TOKEN", Value: "second-file-36"}}}}}})
	b.finish(&Report{})
	if got := b.files["logs/a.log"]; strings.Contains(got, "second-file-36") || strings.Contains(got, "log-40") || strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("%q", got)
	}
}

// Also where the file was there, and everybody's to read.
func TestAnArchiveIsItsOwnersAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w, _ := guarded(t, "", deploy.Enforce)
	if err := w.look("").writeBundle(t.Context(), file, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
