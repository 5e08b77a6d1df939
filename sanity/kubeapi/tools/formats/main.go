// Formats asks others than ourselves whether what deploy/image and deploy/release
// write is what it says it is:
//
//	formats oci FOLDER          is this an OCI image layout, every digest, size and
//	                            configuration right (go-containerregistry)?
//	formats cyclonedx FILE ...  do these hold to the schema of CycloneDX 1.6?
//	formats provenance FILE     is this an in-toto Statement v1 with a SLSA Provenance v1,
//	                            and no field that they do not know (in-toto/attestation)?
//
// It prints what is wrong, and ends with code 1 then.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/xeipuuv/gojsonschema"
	"google.golang.org/protobuf/encoding/protojson"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "oci":
		return checkLayout(args[1])
	case len(args) >= 2 && args[0] == "cyclonedx":
		return checkBOMs(args[1:])
	case len(args) == 2 && args[0] == "provenance":
		return checkProvenance(args[1])
	}
	return errors.New("usage: formats oci FOLDER | formats cyclonedx FILE ... | formats provenance FILE")
}

func checkLayout(folder string) error {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return err
	}
	return validate.Index(index)
}

// The schemas that CycloneDX's own refers to, by the names that it uses.
var references = map[string]string{
	"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
	"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
}

func checkBOMs(paths []string) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		return fmt.Errorf("where the schemas are (run this in its own folder): %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "schema")
	loader := gojsonschema.NewSchemaLoader()
	for url, name := range references {
		if err := loader.AddSchema(url, gojsonschema.NewReferenceLoader("file://"+filepath.Join(folder, name))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	schema, err := loader.Compile(gojsonschema.NewReferenceLoader("file://" + filepath.Join(folder, "bom-1.6.schema.json")))
	if err != nil {
		return fmt.Errorf("the schema: %w", err)
	}
	var problems []error
	for _, path := range paths {
		result, err := schema.Validate(gojsonschema.NewReferenceLoader("file://" + path))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, problem := range result.Errors() {
			problems = append(problems, fmt.Errorf("%s: %s", path, problem))
		}
	}
	return errors.Join(problems...)
}

func checkProvenance(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var statement intoto.Statement
	if err := protojson.Unmarshal(text, &statement); err != nil {
		return fmt.Errorf("%s is no statement: %w", path, err)
	}
	if want := "https://slsa.dev/provenance/v1"; statement.PredicateType != want {
		return fmt.Errorf("%s: predicate type %s, want %s", path, statement.PredicateType, want)
	}
	predicate, err := protojson.Marshal(statement.Predicate)
	if err != nil {
		return err
	}
	var provenance slsa.Provenance
	if err := protojson.Unmarshal(predicate, &provenance); err != nil {
		return fmt.Errorf("%s is no provenance: %w", path, err)
	}
	return errors.Join(statement.Validate(), provenance.Validate())
}
