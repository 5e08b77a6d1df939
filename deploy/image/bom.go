package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

const mainModule = "github.com/csi-fencepost/csi-fencepost"

// bom lists what a program is made of: the modules that the linker noted in it,
// and Go's own library. Modules that only tests or other programs use are not
// in it. The hash of a module is that of go.sum (h1), in hexadecimal.
func (r release) bom(c command, program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("the program says nothing of its modules: %w", err)
	}
	if info.Path != c.path() {
		return nil, fmt.Errorf("the program is %s, not %s", info.Path, c.path())
	}
	digest := sha256.Sum256(program)
	root := goComponent(cyclonedx.ComponentTypeApplication, c.module, r.version)
	root.Hashes = &[]cyclonedx.Hash{sha256Of(digest[:])}
	var settings []cyclonedx.Property
	for _, s := range info.Settings {
		settings = append(settings, cyclonedx.Property{Name: "csi-fencepost:go-build:" + s.Key, Value: s.Value})
	}
	root.Properties = &settings
	components := []cyclonedx.Component{goComponent(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		c, err := moduleComponent(dep)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	var edges []string
	for _, c := range components {
		edges = append(edges, c.BOMRef)
	}
	b := cyclonedx.NewBOM()
	b.SerialNumber, b.Components = serialNumber(digest), &components
	b.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &root}
	b.Dependencies = &[]cyclonedx.Dependency{{Ref: root.BOMRef, Dependencies: &edges}}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(b, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

func sha256Of(sum []byte) cyclonedx.Hash {
	return cyclonedx.Hash{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}
}

func goComponent(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{Type: kind, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
}

func moduleComponent(module *debug.Module) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := goComponent(cyclonedx.ComponentTypeLibrary, module.Path, module.Version)
	c.Scope = cyclonedx.ScopeRequired
	sum, ok := strings.CutPrefix(module.Sum, "h1:")
	if raw, err := base64.StdEncoding.DecodeString(sum); ok && err == nil {
		c.Hashes = &[]cyclonedx.Hash{sha256Of(raw)}
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
