package csi

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Redact takes the values of secrets out of a text that somebody else wrote:
// drivers have been seen to quote them in errors.
func Redact(text string, secrets map[string]string) string {
	// The longest first: of one that is a part of another the rest would stay.
	longest := slices.SortedFunc(maps.Values(secrets), func(a, b string) int { return len(b) - len(a) })
	for _, value := range longest {
		if value != "" {
			text = strings.ReplaceAll(text, value, "***stripped***")
		}
	}
	return text
}

// RedactError does the same for an answer of the driver: external-attacher
// writes it into the VolumeAttachment's status. Code and details stay; an error
// without secrets in its text stays as it is.
func RedactError(err error, secrets map[string]string) error {
	said := status.Convert(err)
	clean := Redact(said.Message(), secrets)
	if clean == said.Message() {
		return err
	}
	p := proto.CloneOf(said.Proto())
	p.Message = clean
	return status.FromProto(p).Err()
}
