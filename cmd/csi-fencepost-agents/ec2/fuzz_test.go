package ec2

import (
	"encoding/xml"
	"net/http"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

func FuzzAnswer(f *testing.F) {
	agenttest.Fuzz(f, func(client *http.Client) contract.Platform {
		return &region{name: "eu-central-1", client: &rest.Client{HTTP: client, Base: "https://ec2.example.com", Decode: xml.Unmarshal}}
	}, "i-0123456789abcdef0", "terminated|stopped|&#",
		`<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><instanceState><code>48</code><name>terminated</name></instanceState></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`,
		`<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><instanceState><name>stopped</name></instanceState><stateReason><code>Client.UserInitiatedShutdown</code></stateReason><hibernationOptions><configured>true</configured></hibernationOptions></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`,
		`<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message>no</Message></Error></Errors></Response>`,
	)
}
