package proxy

import (
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// redact takes the values of a request's secrets out of a text that somebody
// else wrote: drivers have been seen to quote them in errors.
func redact(text string, secrets map[string]string) string {
	for _, value := range secrets {
		if value != "" {
			text = strings.ReplaceAll(text, value, "***stripped***")
		}
	}
	return text
}

// redactError does the same for an answer of the driver: external-attacher
// writes it into the VolumeAttachment's status. Code and details stay; an error
// without secrets in its text stays as it is.
func redactError(err error, secrets map[string]string) error {
	said := status.Convert(err)
	clean := redact(said.Message(), secrets)
	if clean == said.Message() {
		return err
	}
	p := proto.CloneOf(said.Proto())
	p.Message = clean
	return status.FromProto(p).Err()
}
