package kubeapi

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

var vendorNames = deploy.Names{Namespace: "array-system", ServiceAccount: "array-controller", Driver: "array.example.com"}

// The rights of each mode, as they are put in by hand.
func TestTheAPIServerTakesTheRightsOfEachMode(t *testing.T) {
	single.take(t)
	whole.use(t)
	for name, render := range map[string]func(deploy.Names) ([]byte, error){
		"rbac-observe.yaml": deploy.Observe, "rbac-enforce.yaml": deploy.Enforce, "rbac-failover.yaml": deploy.Failover, "rbac-authorization.yaml": deploy.Authorization,
	} {
		manifests, err := render(vendorNames)
		if err != nil {
			t.Fatal(err)
		}
		snapshot(t, name, manifests)
		dryRun(t, manifests)
	}
}

// What inject adds and changes, for each mode.
func TestTheAPIServerTakesWhatInjectWrites(t *testing.T) {
	single.take(t)
	whole.use(t)
	for name, args := range map[string][]string{
		"inject-observe.yaml":  {"inject", "--mode=Observe"},
		"inject-enforce.yaml":  {"inject", "--mode=Enforce"},
		"inject-failover.yaml": {"inject", "--mode=Enforce", "--failover"},
		"inject-native.yaml":   {"inject", "--native-sidecar"},
		"inject-narrowed.yaml": {"inject", "--tls-secret=metrics-tls", "--metrics-from=monitoring"},
	} {
		manifests := csiFencepost(t, vendor(t), args...)
		snapshot(t, name, manifests)
		dryRun(t, manifests)
		if back := csiFencepost(t, manifests, "uninject"); string(back) != string(vendor(t)) {
			t.Errorf("uninject gives back\n%s", back)
		}
	}
}

// The patch, the configuration and the NetworkPolicy for those who do it by hand.
func TestTheAPIServerTakesThePatchOfTheSidecar(t *testing.T) {
	single.take(t)
	whole.use(t)
	applyAll(t, vendor(t))
	fill := strings.NewReplacer("${DEPLOYMENT}", "array-controller", "${NAMESPACE}", "array-system",
		"${DRIVER}", "array.example.com", "${APP}", "array-controller", "${PROMETHEUS}", "monitoring")
	file := func(name string) []byte {
		text, err := deploy.Files.ReadFile("sidecar/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(fill.Replace(string(text)))
	}
	dryRun(t, file("config.yaml"))
	dryRun(t, file("networkpolicy.yaml"))
	patch, err := yaml.YAMLToJSON(file("patch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	api, err := whole.apiOf(findObject(t, objects(t, vendor(t)), "Deployment", "array-controller"))
	if err != nil {
		t.Fatal(err)
	}
	patched, err := api.Patch(t.Context(), "array-controller", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(bare(patched))
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		t.Fatal(err)
	}
	snapshot(t, "sidecar-patched.yaml", text)
}
