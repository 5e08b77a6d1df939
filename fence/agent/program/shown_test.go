package program_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

// typedMetadata has parameters of all types, as real agents' metadata list them.
var typedMetadata = strings.Replace(fmt.Sprintf(metadataText, allActions), "</parameters>", `
<parameter name="community"><content type="string"/></parameter>
<parameter name="cookie"><content type="string"/></parameter>
<parameter name="pin"><content type="integer"/></parameter>
<parameter name="untyped"/>
<parameter name="mixed"/>
<parameter name="symbols"/>
<parameter name="key"><content type="string"/></parameter>
<parameter name="domain"><content type="string"/></parameter>
<parameter name="username"><content type="string"/></parameter>
<parameter name="power_wait"><content type="second"/></parameter>
<parameter name="ssl_secure"><content type="boolean"/></parameter>
<parameter name="cipher_choice"><content type="select"/></parameter>
<parameter name="token_type"><content type="select"/></parameter>
<parameter name="separator"><content type="string"/></parameter>
</parameters>`, 1)

// shown is all that a program's failure has a person see.
func shown(t *testing.T, o program.Options) (device, all string) {
	t.Helper()
	p := newProgram(t, o)
	r, err := p.Status(t.Context(), n1)
	detail, offErr := p.Off(t.Context(), n1)
	device, faults := p.Check(t.Context(), n1)
	return device, fmt.Sprintln(r.Detail, err, detail, offErr, device, errors.Join(faults...))
}

// A parameter is a secret by whatever name, until it is known to be none.
func TestOnlyWhatIsKnownToBeHarmlessIsShown(t *testing.T) {
	dir := shellWith(t, typedMetadata, `echo "sent $in" | tr '\n' ' ' >&2; exit 1`)
	write(t, filepath.Join(dir, "file"), "10.0.0.99")
	o := options(dir)
	o.Parameters = map[string]string{
		"community": "s3cretcommunity", "cookie": "c00kie", "untyped": "whatever-it-is", "pin": "471147114711", "domain": "dom.example",
		"token_type": "bearer-of-all", "username": "fencing", "power_wait": "1234", "ssl_secure": "true", "cipher_choice": "aes-128", "separator": ",",
		"mixed": "hush-$(NODE)", "symbols": "!%&+~", "key": "0xfeed",
		"method": "$(NODE)/$(INSTANCE_ID)",
	}
	o.ParameterFiles = map[string]string{"ip": filepath.Join(dir, "file")}
	device, all := shown(t, o)
	for _, secret := range []string{"s3cretcommunity", "c00kie", "whatever-it-is", "471147114711", "dom.example", "bearer-of-all", "hush", "!%&+~", "0xfeed", "10.0.0.99"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is shown: %s", secret, all)
		}
	}
	if !strings.Contains(all, "separator=, ssl") {
		t.Errorf("a comma is struck out of everything: %s", all)
	}
	for _, harmless := range []string{"username=fencing", "power_wait=1234", "ssl_secure=true", "cipher_choice=aes-128", "port=3", "method=n1/i-0abc"} {
		if !strings.Contains(device, harmless) || strings.Count(all, harmless) < 3 {
			t.Errorf("%s is not shown: %s", harmless, all)
		}
	}
}

// What cannot be shown still tells devices apart, or two nodes would seem to
// share one.
func TestWhatIsNotShownTellsDevicesApart(t *testing.T) {
	dir := shellWith(t, typedMetadata, `echo "Status: ON"`)
	o := options(dir)
	o.NodeParameters["port"]["n2"] = "3"
	o.NodeParameters["domain"] = map[string]string{"n1": "one.example", "n2": "two.example", "n3": "one.example"}
	o.NodeParameters["port"]["n3"] = "3"
	// A password does not: two nodes with two passwords of one outlet share it.
	o.NodeParameters["passwd"] = map[string]string{"n1": "a-password", "n2": "b-password", "n3": "c-password"}
	p := newProgram(t, o)
	device := func(node string) string {
		device, faults := p.Check(t.Context(), agent.Machine{Node: node})
		if len(faults) > 0 || strings.Contains(device, "example") || strings.Contains(device, "password") {
			t.Errorf("%s: %s %v", node, device, faults)
		}
		return device
	}
	if device("n1") == device("n2") || device("n1") != device("n3") {
		t.Errorf("%q, %q, %q", device("n1"), device("n2"), device("n3"))
	} // The key of a SCSI reservation does.
	o.NodeParameters["key"] = map[string]string{"n1": "example-1", "n2": "example-2", "n3": "example-3"}
	p = newProgram(t, o)
	if device("n1") == device("n3") {
		t.Errorf("%q", device("n1"))
	}
}
