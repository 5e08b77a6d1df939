package run

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/deploy"
)

func TestWhatIsAdvisedIsWhatIsDeployedAndDocumented(t *testing.T) {
	patch, err := deploy.Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page := clitest.ReadFile(t, "docs/use/failover.md")
	for _, f := range attacherFlags {
		clitest.Says(t, string(patch), "- "+f.flag+"\n")
		name, value, _ := strings.Cut(f.flag, "=")
		if row := regexp.MustCompile("\\| `" + name + "` \\| \\S+ \\| " + value + " \\|"); !row.MatchString(page) {
			t.Errorf("docs/use/failover.md does not say %s", f.flag)
		}
	}
}

func TestTheAdviceNamesEveryFlagAndWhy(t *testing.T) {
	var log bytes.Buffer
	adviseAttacher(klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
	for _, f := range attacherFlags {
		clitest.Says(t, log.String(), f.flag, f.why)
	}
}
