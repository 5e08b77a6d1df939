// Package ec2 fences instances of Amazon EC2.
//
// It speaks three actions of EC2's Query API
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html), signed by the SDK:
// the SDK's own package of EC2 compiles for minutes and needs gigabytes, for all the others.
package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// apiVersion is that of EC2 since 2016.
const apiVersion = "2016-11-15"

// Agent is fence_fencepost_ec2.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "ec2",
		Short: "Amazon EC2: an instance's state",
		Long: "Off is terminated, and stopped; of an instance that can hibernate only terminated, and of a spot instance a stop only if somebody stopped it. On is running; pending, stopping and shutting-down are neither. " +
			"off is StopInstances with Force and SkipOsShutdown, which EC2 refuses for most spot instances, those of auto scaling groups, fleets and Karpenter among them, and for instances without a volume of EBS to boot from: terminate=true has them terminated. " +
			"The plug is i-… or the node's provider ID, aws:///ZONE/i-…. The API says no system UUID. " +
			"An instance that EC2 no longer knows, about an hour after its end, is an error. An Outpost that is cut off from its region runs on, whatever the region says. " +
			"Without access_key, web_identity_token_file and container_credentials_full_uri the credentials are those of the instance that this runs on. " +
			"ca_file and fingerprint are of EC2's endpoint; credentials are fetched as the SDK does it. " +
			"Rights: ec2:DescribeInstances, and to fence ec2:StopInstances and ec2:StartInstances, or ec2:TerminateInstances.",
		Parameters: []contract.Parameter{
			{Name: "region", Required: true, Env: "AWS_REGION", Help: "The region of the instances, as eu-central-1."},
			{Name: "endpoint", Help: "EC2's endpoint, where it is not https://ec2.REGION.amazonaws.com (in China .cn)."},
			{Name: "terminate", Type: "boolean", Default: "false", Help: "true: off terminates the instance, with what it has on its own volumes; for nodes that something else replaces."},
			{Name: "access_key", Env: "AWS_ACCESS_KEY_ID", Help: "The ID of an access key."},
			{Name: "secret_key", Env: "AWS_SECRET_ACCESS_KEY", Secret: true, Help: "The access key."},
			{Name: "session_token", Env: "AWS_SESSION_TOKEN", Secret: true, Help: "Goes with an access key that ends."},
			{Name: "role_arn", Env: "AWS_ROLE_ARN", Help: "The role to take with web_identity_token_file (EKS: IAM roles for service accounts)."},
			{Name: "web_identity_token_file", SecretFile: true, Env: "AWS_WEB_IDENTITY_TOKEN_FILE", Help: "A file with the token for that role, on EKS /var/run/secrets/eks.amazonaws.com/serviceaccount/token."},
			{Name: "container_credentials_full_uri", Env: "AWS_CONTAINER_CREDENTIALS_FULL_URI", Help: "EKS Pod Identity: http://169.254.170.23/v1/credentials."},
			{Name: "container_authorization_token_file", SecretFile: true, Env: "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Help: "EKS Pod Identity: /var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token."},
		},
		Open: open,
	}
}

// region holds what is in one region of one account.
type region struct {
	name      string
	terminate bool
	client    *rest.Client
}

var isRegion = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	name := v["region"]
	if !isRegion.MatchString(name) {
		return nil, fmt.Errorf("parameter region: %q is no region, as eu-central-1 (a zone has one more letter)", name)
	}
	if (v["access_key"] == "") != (v["secret_key"] == "") {
		return nil, errors.New("parameters access_key and secret_key: give both, or none")
	}
	if (v["role_arn"] == "") != (v["web_identity_token_file"] == "") {
		return nil, errors.New("parameters role_arn and web_identity_token_file: give both, or none")
	}
	if v["endpoint"] == "" {
		v["endpoint"] = "https://ec2." + name + ".amazonaws.com"
		if strings.HasPrefix(name, "cn-") {
			v["endpoint"] += ".cn"
		}
	}
	api, err := rest.Open(v, "endpoint")
	if err != nil {
		return nil, err
	}
	sdk, err := config.LoadDefaultConfig(ctx, config.WithRegion(name), config.WithAPIOptions([]func(*middleware.Stack) error{bounded}))
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	api.Who, api.Decode = signer(sdk.Credentials, name), xml.Unmarshal
	return &region{name, v["terminate"] == "true", api}, nil
}

// bounded bounds what the SDK reads of whoever gives credentials. The SDK takes no http.RoundTripper of
// another's together with AWS_CA_BUNDLE, nor for the time-outs that it has for the instance's metadata.
func bounded(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("Bounded", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, data, err := next.HandleDeserialize(ctx, in)
		if res, ok := out.RawResponse.(*smithyhttp.Response); ok && res != nil && res.Response != nil {
			trust.Bound(res.Response, "whoever gives credentials")
		}
		return out, data, err
	}), middleware.After)
}

// signer signs as AWS Signature Version 4 has it.
func signer(credentials aws.CredentialsProvider, region string) rest.Who {
	return func(ctx context.Context, r *http.Request, body []byte) error {
		c, err := credentials.Retrieve(ctx)
		if err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
		sum := sha256.Sum256(body)
		return v4.NewSigner().SignHTTP(ctx, c, r, hex.EncodeToString(sum[:]), "ec2", region, time.Now())
	}
}

// instance is what of EC2's Instance is looked at.
type instance struct {
	ID        string `xml:"instanceId"`
	State     string `xml:"instanceState>name"`
	Zone      string `xml:"placement>availabilityZone"`
	Reason    string `xml:"stateReason>code"`
	Hibernate bool   `xml:"hibernationOptions>configured"`
	Lifecycle string `xml:"instanceLifecycle"`
	Tags      []struct {
		Key   string `xml:"key"`
		Value string `xml:"value"`
	} `xml:"tagSet>item"`
}

type described struct {
	Instances []instance `xml:"reservationSet>item>instancesSet>item"`
	Next      string     `xml:"nextToken"`
}

// ask sends one action. EC2's own words of an error are those that count.
func (r *region) ask(ctx context.Context, action string, form url.Values, out any) error {
	form.Set("Action", action)
	form.Set("Version", apiVersion)
	err := r.client.PostForm(ctx, "/", form, out)
	var status *rest.StatusError
	if !errors.As(err, &status) {
		return err
	}
	var refused failure
	if xml.Unmarshal(status.Text, &refused) != nil || refused.Code == "" {
		return err
	}
	return &refused
}

// failure is how EC2 says no.
type failure struct {
	Code    string `xml:"Errors>Error>Code"`
	Message string `xml:"Errors>Error>Message"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

var isInstance = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// Find takes an instance's ID, or aws:///ZONE/ID. An ID is never used again.
func (r *region) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	id, zone := plug, ""
	if place, ok := strings.CutPrefix(plug, "aws://"); ok {
		parts := strings.Split(place, "/")
		if len(parts) != 3 || parts[0] != "" {
			return nil, fmt.Errorf("%s is no instance of EC2, whose provider IDs are aws:///ZONE/i-…", plug)
		}
		zone, id = parts[1], parts[2]
	}
	if !isInstance.MatchString(id) {
		return nil, fmt.Errorf("%s is no instance of EC2, whose IDs are i- and up to 17 hexadecimal digits", plug)
	}
	if zone != "" && !strings.HasPrefix(zone, r.name) {
		return nil, fmt.Errorf("%s is in zone %s, and region %s is asked", id, zone, r.name)
	}
	var all described
	if err := r.ask(ctx, "DescribeInstances", url.Values{"InstanceId.1": {id}}, &all); err != nil {
		return nil, fmt.Errorf("instance %s in region %s at %s: %w", id, r.name, r.client.Base, err)
	}
	if len(all.Instances) != 1 || all.Instances[0].ID != id {
		return nil, fmt.Errorf("region %s at %s answers with %d instances where %s was asked for", r.name, r.client.Base, len(all.Instances), id)
	}
	one := all.Instances[0]
	if zone != "" && one.Zone != zone {
		return nil, fmt.Errorf("instance %s is in zone %s, and the node's provider ID says %s", id, one.Zone, zone)
	}
	return machine(one), nil
}

// stoppedByHand is the reason of a stop that somebody asked for
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html).
const stoppedByHand = "Client.UserInitiatedShutdown"

func machine(i instance) *contract.Machine {
	m := &contract.Machine{ID: i.ID, Says: i.State}
	for _, tag := range i.Tags {
		if tag.Key == "Name" {
			m.Name = tag.Value
		}
	}
	switch i.State {
	case "running":
		m.State = contract.On
	case "terminated":
		m.State = contract.Off
	case "stopped":
		// The reason tells what was asked for, and not what the instance then did.
		if i.Hibernate || i.Lifecycle == "spot" && i.Reason != stoppedByHand {
			m.Says = fmt.Sprintf("stopped, and may be hibernated (its reason is %q)", i.Reason)
			return m
		}
		m.State = contract.Off
	}
	return m
}

// Off asks without the system's own shutdown, which a hung one never ends.
func (r *region) Off(ctx context.Context, m *contract.Machine) error {
	action := "StopInstances"
	if r.terminate {
		action = "TerminateInstances"
	}
	form := url.Values{"InstanceId.1": {m.ID}, "Force": {"true"}, "SkipOsShutdown": {"true"}}
	err := r.ask(ctx, action, form, nil)
	var refused *failure
	if errors.As(err, &refused) && refused.Code == "UnknownParameter" {
		// An endpoint from before October 2025, or one that only speaks as EC2 does.
		form.Del("SkipOsShutdown")
		err = r.ask(ctx, action, form, nil)
	}
	return err
}

func (r *region) On(ctx context.Context, m *contract.Machine) error {
	return r.ask(ctx, "StartInstances", url.Values{"InstanceId.1": {m.ID}}, nil)
}

func (r *region) List(ctx context.Context) (all []*contract.Machine, err error) {
	read := rest.Pages{}
	for next := ""; ; {
		form := url.Values{"MaxResults": {"1000"}}
		if next != "" {
			form.Set("NextToken", next)
		}
		var page described
		if err := r.ask(ctx, "DescribeInstances", form, &page); err != nil {
			return nil, err
		}
		for _, i := range page.Instances {
			all = append(all, machine(i))
		}
		if next = page.Next; next == "" {
			return all, nil
		}
		if err := read.Turn(next); err != nil {
			return nil, err
		}
	}
}
