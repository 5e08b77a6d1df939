package vsphere

import (
	"net/http"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

// asked is a vCenter whose service content is known.
func asked(by *http.Client, base string) *vcenter {
	c, err := client(by, base)
	if err != nil {
		panic(err)
	}
	c.content.SearchIndex = &types.ManagedObjectReference{Type: "SearchIndex", Value: "SearchIndex"}
	return c
}

const (
	uuid = "4237e6c2-1111-4222-8333-444444444444"
	// answer is one to each question of Find: its host is the machine itself.
	answer = `<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>` +
		`<FindAllByUuidResponse xmlns="urn:vim25"><returnval type="VirtualMachine">vm-42</returnval></FindAllByUuidResponse>` +
		`<RetrievePropertiesExResponse xmlns="urn:vim25"><returnval><objects><obj type="VirtualMachine">vm-42</obj>` +
		`<propSet><name>config.uuid</name><val xsi:type="xsd:string">` + uuid + `</val></propSet>` +
		`<propSet><name>runtime.powerState</name><val xsi:type="VirtualMachinePowerState">poweredOff</val></propSet>` +
		`<propSet><name>runtime.connectionState</name><val xsi:type="VirtualMachineConnectionState">connected</val></propSet>` +
		`<propSet><name>runtime.host</name><val type="VirtualMachine" xsi:type="ManagedObjectReference">vm-42</val></propSet>` +
		`</objects></returnval></RetrievePropertiesExResponse></soapenv:Body></soapenv:Envelope>`
	fault = `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>The session is not authenticated.</faultstring><detail><NotAuthenticatedFault xmlns="urn:vim25" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="NotAuthenticated"/></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`
)

// The vCenter answers with what it was not asked for.
func TestAnAnswerAboutSomethingElseIsAnError(t *testing.T) {
	propSet := answer[strings.Index(answer, "<objects>"):strings.Index(answer, "</returnval></RetrievePropertiesExResponse>")]
	for name, c := range map[string]struct{ text, want string }{
		"itself":           {answer, ""},
		"another machine":  {strings.Replace(answer, ">vm-42</obj>", ">vm-43</obj>", 1), "does not answer with vm-42"},
		"two machines":     {strings.Replace(answer, propSet, propSet+propSet, 1), "does not answer with vm-42"},
		"no machine":       {strings.Replace(answer, propSet, "", 1), "does not answer with vm-42"},
		"nothing":          {strings.Replace(answer, "RetrievePropertiesEx", "RetrieveNothing", 2), "answers with nothing"},
		"an empty answer":  {`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body/></Envelope>`, "answers with nothing"},
		"a missing right":  {strings.Replace(answer, "</objects>", `<missingSet><path>runtime.host</path><fault><fault xsi:type="NoPermission"/><localizedMessage>no right</localizedMessage></fault></missingSet></objects>`, 1), "runtime.host of vm-42 may not be seen: no right"},
		"no UUID":          {strings.Replace(answer, "config.uuid", "config.name", 1), `the BIOS UUID ""`},
		"a session's end":  {fault, "not authenticated"},
		"a page of others": {"<html>no</html>", "html"},
	} {
		server := agenttest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/xml")
			if c.text == fault {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write([]byte(c.text))
		}))
		m, err := asked(server.Client(), server.URL).Find(t.Context(), uuid)
		switch {
		case c.want == "" && (err != nil || m.State != contract.Neither || m.Says != "poweredOff (the machine is connected, its host is connected)"):
			t.Errorf("%s: %+v, %v", name, m, err) // its host is no host: connected is that of a machine
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %+v, %v; want %s", name, m, err, c.want)
		}
	}
}
