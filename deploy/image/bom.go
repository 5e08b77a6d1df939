package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

const mainModule = "github.com/csi-fencepost/csi-fencepost"

// What follows is CycloneDX 1.6, with the fields used here.

type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp time.Time `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Reference  string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Scope      string     `json:"scope,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Reference string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// bom lists what a program is made of: the modules that the linker noted in it,
// and Go's own library. Modules that only tests or other programs use are not
// in it. The hash of a module is that of go.sum (h1), in hexadecimal.
func (r release) bom(program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("the program says nothing of its modules: %w", err)
	}
	if info.Path != mainModule+"/cmd/csi-fencepost" {
		return nil, fmt.Errorf("the program is %s, not csi-fencepost", info.Path)
	}
	digest := sha256.Sum256(program)
	root := goComponent("application", mainModule, r.version)
	root.Hashes = []hash{{"SHA-256", fmt.Sprintf("%x", digest)}}
	for _, s := range info.Settings {
		root.Properties = append(root.Properties, property{"csi-fencepost:go-build:" + s.Key, s.Value})
	}
	b := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: serialNumber(digest),
		Metadata:     bomMetadata{r.date, root},
		Components:   []component{goComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, dep := range info.Deps {
		c, err := moduleComponent(dep)
		if err != nil {
			return nil, err
		}
		b.Components = append(b.Components, c)
	}
	edges := dependency{Reference: root.Reference}
	for _, c := range b.Components {
		edges.DependsOn = append(edges.DependsOn, c.Reference)
	}
	b.Dependencies = []dependency{edges}
	out, err := json.MarshalIndent(b, "", "  ")
	return append(out, '\n'), err
}

func goComponent(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Reference: purl, Name: path, Version: version, PURL: purl}
}

func moduleComponent(module *debug.Module) (component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := goComponent("library", module.Path, module.Version)
	c.Scope = "required"
	sum, ok := strings.CutPrefix(module.Sum, "h1:")
	if raw, err := base64.StdEncoding.DecodeString(sum); ok && err == nil {
		c.Hashes = []hash{{"SHA-256", fmt.Sprintf("%x", raw)}}
		return c, nil
	}
	return c, fmt.Errorf("module %s %s is not one of the proxy's: its sum is %q", module.Path, module.Version, module.Sum)
}

// serialNumber is a UUID (version 8, made from the program's digest): the same
// program has the same SBOM.
func serialNumber(digest [sha256.Size]byte) string {
	u := digest[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
