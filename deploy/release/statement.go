package main

// The fields of https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
// https://slsa.dev/spec/v1.0/provenance that we know anything of. The tests have in-toto's own
// library read them.

type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     provenance   `json:"predicate"`
}

type descriptor struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition definition `json:"buildDefinition"`
	RunDetails      details    `json:"runDetails"`
}

type definition struct {
	BuildType            string       `json:"buildType"`
	ExternalParameters   parameters   `json:"externalParameters"`
	InternalParameters   toolchain    `json:"internalParameters"`
	ResolvedDependencies []descriptor `json:"resolvedDependencies"`
}

type parameters struct {
	Source  string `json:"source"`
	Version string `json:"version"`
	Date    string `json:"date"`
	Image   string `json:"image,omitempty"`
}

type toolchain struct {
	Go string `json:"go"`
}

type details struct {
	Builder  builder   `json:"builder"`
	Metadata *metadata `json:"metadata,omitempty"`
}

type builder struct {
	ID string `json:"id"`
}

type metadata struct {
	InvocationID string `json:"invocationId"`
}

// sha256 is a digest as a statement has it.
func sha256(hex string) map[string]string { return map[string]string{"sha256": hex} }
